// Segments that work on each piece of a rank's sequences for itself.
//
// With batch.sequence_strands = Q a sequence is cut into 2 Q chunks, and piece p is its chunks p and
// 2 Q - 1 - p: what context rank p of Q holds of it in a ring. A rank holds Q / context pieces, one behind
// the other, and every segment but attention runs once for each: the same products of the same sizes as on Q
// ranks. The pieces' gradients of weights are summed over one balanced tree over all Q, first here, then
// among the ranks, and every piece has a place of its own for its loss. So the bits do not depend on how many
// ranks there are. Attention, which joins pieces, is written for it (sequence_attention.cc).
#pragma once

#include "lockstep/model/block.h"

namespace lockstep::model {

// Of a model that was built for a rank with so many pieces.
void cut_into_pieces(Model& model, int pieces);

}  // namespace lockstep::model
