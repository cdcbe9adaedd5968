#include "lockstep/kernels/attention/attention_part.h"

#include "lockstep/base/error.h"

namespace lockstep::kernels {

void require_valid(const AttentionPartShape& shape, const PartDocuments& documents) {
  LS_ASSERT(shape.kv_heads > 0 && shape.heads > 0 && shape.heads % shape.kv_heads == 0 && shape.head_dim > 0,
            "query heads are a multiple of key heads");
  LS_ASSERT(shape.q_len > 0 && shape.kv_len > 0, "a part has queries and keys");
  LS_ASSERT(!shape.causal || shape.q_len == shape.kv_len, "a causal part meets its own keys");
  LS_ASSERT(!shape.causal || shape.distance == 0, "a causal part begins where its keys do");
  LS_ASSERT(shape.distance >= 0 && shape.scores.window >= 0 && shape.scores.softcap >= 0,
            "distances, windows and caps count from 0");
  LS_ASSERT(shape.kept_apart || documents.begins == nullptr, "an engine was chosen that knows no documents");
  LS_ASSERT(
      shape.q_stride >= shape.heads * shape.head_dim && shape.kv_stride >= shape.kv_heads * shape.head_dim,
      "rows would overlap");
}

}  // namespace lockstep::kernels
