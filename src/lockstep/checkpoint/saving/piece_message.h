// Pieces as bytes, for telling other ranks of them.
#pragma once

#include <string>
#include <vector>

#include "lockstep/checkpoint/saving/piece.h"

namespace lockstep::checkpoint {

std::string message_of(const std::vector<Piece>& pieces);
std::vector<Piece> pieces_of(const std::string& message);

}  // namespace lockstep::checkpoint
