// Our store as PyTorch's: what Gloo and NCCL use to find each other. Only *_torch.cc files may include this.
//
// Thread-safe as c10d demands (a waiting call holds the others up, as TCPStore's does); clone() has a
// connection of its own. A timeout becomes c10::DistStoreError, a lost server c10::DistNetworkError. c10d's
// timeout of zero means for ever.
#pragma once

#include <c10/util/intrusive_ptr.h>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include <memory>

#include "lockstep/comm/store/store.h"

namespace lockstep::comm {

c10::intrusive_ptr<c10d::Store> as_c10d(std::unique_ptr<Store> store);

}  // namespace lockstep::comm
