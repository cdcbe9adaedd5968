// manifest.json: what a checkpoint consists of. Its presence, whole, is what makes a folder a checkpoint.
//
// It carries a checksum of itself, so that a torn or damaged manifest is told from a true one.
#pragma once

#include <string>

#include "lockstep/checkpoint/checkpoint.h"
#include "lockstep/checkpoint/saving/disk.h"

namespace lockstep::checkpoint {

constexpr const char* kManifestName = "manifest.json";

// The commit: everything else is on the disk before this is called. IoError 807, 808.
void write_manifest(const std::string& folder, const Manifest& manifest, const Disk& disk = system_disk());

Manifest read_manifest(const std::string& folder);  // DataError 304
Manifest parse_manifest(const std::string& text, const std::string& path);

}  // namespace lockstep::checkpoint
