#include "lockstep/kernels/attention/attention_part.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <numeric>

#include "lockstep/base/error.h"
#include "lockstep/kernels/testing.h"

namespace lockstep::kernels::testing {
namespace {

// A sequence cut into chunks, as ranks of a context group hold it.
struct Case {
  DType type;
  int64_t samples, heads, kv_heads, head_dim;
  std::vector<int64_t> chunks;  // tokens in each
  ScoreOptions scores{};
  std::vector<std::vector<int64_t>> documents{};  // their lengths, sample by sample; none: a sample is one

  int64_t seq_len() const { return std::accumulate(chunks.begin(), chunks.end(), int64_t{0}); }
  AttentionShape whole() const {
    const int64_t most = documents.empty() ? 0 : samples * most_documents(seq_len());
    return {type, samples, seq_len(), heads, kv_heads, head_dim, scores, most};
  }
  int64_t q_width() const { return heads * head_dim; }
  int64_t kv_width() const { return kv_heads * head_dim; }
  int64_t first_of(int64_t chunk) const {
    return std::accumulate(chunks.begin(), chunks.begin() + chunk, int64_t{0});
  }
};

std::vector<Case> cases() {
  std::vector<Case> all;
  for (const DType type : kEdgeTypes) {
    all.push_back({type, 1, 1, 1, 16, {1}});
    all.push_back({type, 2, 2, 2, 8, {7, 7}});
    all.push_back({type, 3, 4, 2, 16, {33, 1, 20}});
    all.push_back({type, 1, 6, 2, 64, {64, 64, 64, 64}});
    all.push_back({type, 2, 4, 4, 36, {130, 48}});  // rows that are no multiple of 16 bytes
    all.push_back({type, 1, 2, 1, 128, {65, 97}});
    all.push_back({type, 1, 2, 2, 96, {20, 33}});
    all.push_back({type, 2, 4, 1, 64, {130, 200, 70}});
    all.push_back({type, 1, 2, 1, 256, {33, 50}});
    all.push_back({type, 1, 2, 1, 32, {600, 70}});  // more keys than are met at a time
    // Windows within a chunk, across one and across two, so that queries see nothing of some chunks.
    all.push_back({type, 2, 2, 1, 16, {33, 33, 33}, {.window = 7}});
    all.push_back({type, 1, 4, 2, 64, {70, 40, 30}, {.window = 60, .softcap = 1.2f, .scale = 0.2f}});
    all.push_back({type, 1, 2, 1, 32, {1200, 70}, {.window = 300}});
    all.push_back({type, 1, 2, 2, 96, {20, 33}, {.softcap = 0.9f}});
    // Documents within a chunk, across some, and beginning with one; so that queries see nothing of others.
    all.push_back({type, 2, 2, 1, 16, {20, 20, 20}, {}, {{7, 33, 1, 19}, {20, 40}}});
    all.push_back({type, 1, 4, 2, 64, {64, 64, 64, 64}, {}, {{100, 92, 64}}});
    all.push_back({type, 3, 2, 2, 32, {33, 1, 20}, {.window = 11}, {{30, 24}, {54}, {34, 20}}});
    all.push_back({type, 1, 2, 1, 32, {1200, 70}, {}, {{520, 100, 600, 50}}});
  }
  return all;
}

std::string describe(const Case& c) {
  return fmt::format("{} samples {} heads {} kv {} dim {} chunks {} documents {}", name_of(c.type), c.samples,
                     c.heads, c.kv_heads, c.head_dim, c.chunks, c.documents);
}

// Orders in which chunk `query` may meet its keys: as stored, as a ring brings them, and another.
std::vector<std::vector<int64_t>> orders(int64_t query) {
  std::vector<int64_t> stored(static_cast<size_t>(query + 1));
  std::iota(stored.begin(), stored.end(), 0);
  const std::vector<int64_t> ring(stored.rbegin(), stored.rend());
  std::vector<int64_t> odd_first = stored;
  std::stable_partition(odd_first.begin(), odd_first.end(), [](int64_t chunk) { return chunk % 2 == 1; });
  return {stored, ring, odd_first};
}

// Columns [from, from + count) of the rows of one chunk of every sample.
Values chunk_of(const Case& c, const Values& rows, int64_t chunk, int64_t from, int64_t count) {
  const int64_t width = static_cast<int64_t>(rows.size()) / (c.samples * c.seq_len());
  Values part;
  for (int64_t sample = 0; sample < c.samples; ++sample) {
    for (int64_t t = 0; t < c.chunks[static_cast<size_t>(chunk)]; ++t) {
      const auto row = rows.begin() + (sample * c.seq_len() + c.first_of(chunk) + t) * width + from;
      part.insert(part.end(), row, row + count);
    }
  }
  return part;
}

// [samples, heads, seq_len] of one chunk.
Values lse_of(const Case& c, const Values& lse, int64_t chunk) {
  Values part;
  for (int64_t head = 0; head < c.samples * c.heads; ++head) {
    const auto row = lse.begin() + head * c.seq_len() + c.first_of(chunk);
    part.insert(part.end(), row, row + c.chunks[static_cast<size_t>(chunk)]);
  }
  return part;
}

// Where in its sample the document of each row begins, of all samples; and first rows of documents.
struct Places {
  std::vector<int32_t> begins, offsets;
};

Places places_of(const Case& c) {
  Places places;
  for (const std::vector<int64_t>& sample : c.documents) {
    int32_t place = 0;
    for (const int64_t length : sample) {
      places.offsets.push_back(static_cast<int32_t>(places.begins.size()));
      places.begins.insert(places.begins.end(), static_cast<size_t>(length), place);
      place += static_cast<int32_t>(length);
    }
    EXPECT_EQ(place, c.seq_len());
  }
  places.offsets.resize(static_cast<size_t>(c.whole().documents) + 1, static_cast<int32_t>(c.whole().rows()));
  return places;
}

std::vector<int32_t> begins_of(const Case& c, int64_t chunk) {
  const std::vector<int32_t> all = places_of(c).begins;
  const Values part = chunk_of(c, Values(all.begin(), all.end()), chunk, 0, 1);
  return {part.begin(), part.end()};
}

class AttentionPartTest : public KernelTest {
 protected:
  // The whole sequence by the kernels that are tested elsewhere, and its chunks in memory of their own: q
  // inside packed rows, as the projection wrote it, k and v side by side, as they travel.
  struct Sequence {
    Values out, lse, dqkv, dout;
    std::vector<Memory> qkv, kv, dout_of, out_of, lse_of, begins;
  };

  Sequence sequence(const Case& c) {
    Sequence all;
    const AttentionShape shape = c.whole();
    const Values packed = rounded(random_values(shape.rows() * shape.qkv_width(), 5), c.type);
    all.dout = rounded(random_values(shape.rows() * c.q_width(), 6), c.type);
    const Memory qkv = upload(packed, c.type), dout = upload(all.dout, c.type);
    const Memory out = garbage(shape.rows() * c.q_width(), c.type), dqkv = garbage(qkv.count(), c.type);
    const Memory lse = garbage(shape.rows() * c.heads, DType::f32);
    const Launch scratch = launch(kernels().attention_workspace(shape));
    const Places places = c.documents.empty() ? Places{} : places_of(c);
    const Memory begins = upload_ints(places.begins), offsets = upload_ints(places.offsets);
    Documents documents;
    if (!c.documents.empty()) documents = {begins.as<int32_t>(), offsets.as<int32_t>()};
    kernels().attention_forward({shape, qkv.data(), out.data(), lse.as<float>(), documents}, scratch);
    kernels().attention_backward(
        {shape, qkv.data(), out.data(), dout.data(), lse.as<float>(), dqkv.data(), documents}, scratch);
    all.out = download(out);
    all.lse = download(lse);
    all.dqkv = download(dqkv);
    for (int64_t i = 0; i < static_cast<int64_t>(c.chunks.size()); ++i) {
      all.qkv.push_back(upload(chunk_of(c, packed, i, 0, shape.qkv_width()), c.type));
      all.kv.push_back(upload(chunk_of(c, packed, i, c.q_width(), 2 * c.kv_width()), c.type));
      all.dout_of.push_back(upload(chunk_of(c, all.dout, i, 0, c.q_width()), c.type));
      all.out_of.push_back(upload(chunk_of(c, all.out, i, 0, c.q_width()), c.type));
      all.lse_of.push_back(upload(testing::lse_of(c, all.lse, i), DType::f32));
      if (!c.documents.empty()) all.begins.push_back(upload_ints(begins_of(c, i)));
    }
    // Where there are documents, whole attention keeps its log-sum-exps in an order of its own.
    for (size_t i = 0; i < all.begins.size(); ++i) {
      const Memory unused = garbage(all.out_of[i].count(), DType::f32);
      for (int64_t key = 0; key <= static_cast<int64_t>(i); ++key)
        merge(c, all, i, key,
              {.out = unused.as<float>(), .lse = all.lse_of[i].as<float>(), .first = key == 0});
    }
    return all;
  }

  // `to` says where to.
  void merge(const Case& c, const Sequence& all, size_t query, int64_t key, AttentionPart to) {
    const Memory& kv = all.kv[static_cast<size_t>(key)];
    to.shape = part_shape(c, static_cast<int64_t>(query), key);
    to.q = all.qkv[query].data();
    to.k = kv.data();
    to.v = values_of(c, kv);
    to.documents = documents_of(c, all, query, key);
    kernels().attention_part(to, launch(kernels().attention_part_workspace(to.shape)));
  }

  static PartDocuments documents_of(const Case& c, const Sequence& all, size_t query, int64_t key) {
    if (c.documents.empty()) return {};
    return {all.begins[query].as<int32_t>(), c.first_of(key)};
  }

  static AttentionPartShape part_shape(const Case& c, int64_t query, int64_t key) {
    return {.type = c.type,
            .samples = c.samples,
            .q_len = c.chunks[static_cast<size_t>(query)],
            .kv_len = c.chunks[static_cast<size_t>(key)],
            .heads = c.heads,
            .kv_heads = c.kv_heads,
            .head_dim = c.head_dim,
            .causal = query == key,
            .q_stride = c.whole().qkv_width(),
            .kv_stride = 2 * c.kv_width(),
            .scores = c.scores,
            .distance = c.first_of(query) - c.first_of(key),
            .kept_apart = !c.documents.empty()};
  }
  static const void* values_of(const Case& c, const Memory& kv) {
    return kv.as<char>() + c.kv_width() * device::size_of(c.type);
  }

  void merge_parts(const Case& c) {
    const Sequence all = sequence(c);
    for (size_t i = 0; i < c.chunks.size(); ++i) {
      const auto query = static_cast<int64_t>(i);
      for (const std::vector<int64_t>& order : orders(query)) {
        SCOPED_TRACE(fmt::format("queries {} keys {}", query, order));
        const Memory out = garbage(all.out_of[i].count(), DType::f32);
        const Memory lse = garbage(all.lse_of[i].count(), DType::f32);
        for (const int64_t key : order) {
          run({&out, &lse}, [&] {
            merge(c, all, i, key,
                  {.out = out.as<float>(), .lse = lse.as<float>(), .first = key == order.front()});
          });
        }
        expect_close(download(out), download(all.out_of[i]), tolerance(c.type), "out");
        const double size = c.type == DType::f32 ? 4 : 1000;
        expect_close(download(lse), download(all.lse_of[i]), tolerance(DType::f32, size), "lse");
      }
    }
  }

  void add_gradients_of_parts(const Case& c) {
    const Sequence all = sequence(c);
    const auto chunks = static_cast<int64_t>(c.chunks.size());
    std::vector<Memory> dkv;
    for (const Memory& kv : all.kv) dkv.push_back(garbage(kv.count(), DType::f32));
    std::vector<bool> met(c.chunks.size(), false);
    for (int64_t query = chunks - 1; query >= 0; --query) {
      const auto i = static_cast<size_t>(query);
      const Memory delta = garbage(all.lse_of[i].count(), DType::f32);
      const Memory dq = garbage(all.out_of[i].count(), DType::f32);
      const AttentionDelta of_delta{c.type,
                                    c.samples,
                                    c.chunks[i],
                                    c.heads,
                                    c.head_dim,
                                    all.out_of[i].data(),
                                    all.dout_of[i].data(),
                                    delta.as<float>()};
      run({&delta}, [&] { kernels().attention_delta(of_delta, launch()); });
      const std::vector<int64_t> order = orders(query).at(i % 3);
      for (const int64_t key : order) {
        const auto j = static_cast<size_t>(key);
        AttentionPartBackward op{part_shape(c, query, key), all.qkv[i].data(), all.kv[j].data(),
                                 values_of(c, all.kv[j])};
        op.out = all.out_of[i].data();
        op.dout = all.dout_of[i].data();
        op.lse = all.lse_of[i].as<float>();
        op.delta = delta.as<float>();
        op.dq = dq.as<float>();
        op.dk = dkv[j].as<float>();
        op.dv = op.dk + c.kv_width();
        op.dkv_stride = 2 * c.kv_width();
        op.first_q = key == order.front();
        op.first_kv = !met[j];
        op.documents = documents_of(c, all, i, key);
        met[j] = true;
        const int64_t bytes = kernels().attention_part_workspace(op.shape);
        run({&dq, &dkv[j]}, [&] { kernels().attention_part_backward(op, launch(bytes)); });
      }
      const Values expected = chunk_of(c, all.dqkv, query, 0, c.q_width());
      expect_close(download(dq), expected, tolerance(c.type, 8), fmt::format("dq of chunk {}", query));
    }
    for (int64_t key = 0; key < chunks; ++key) {
      const Values expected = chunk_of(c, all.dqkv, key, c.q_width(), 2 * c.kv_width());
      expect_close(download(dkv[static_cast<size_t>(key)]), expected, tolerance(c.type, 8),
                   fmt::format("dk and dv of chunk {}", key));
    }
  }

  void on_every_engine(const Case& c, const std::function<void()>& body) {
    SCOPED_TRACE(describe(c));
    on_every_attention([&] { return kernels().attention_part_engine(part_shape(c, 0, 0)); }, body);
  }
};

TEST_P(AttentionPartTest, PartsInAnyOrderMergeToTheWhole) {
  for (const Case& c : cases()) on_every_engine(c, [&] { merge_parts(c); });
}

TEST_P(AttentionPartTest, GradientsOfPartsAddUpToTheWhole) {
  for (const Case& c : cases()) on_every_engine(c, [&] { add_gradients_of_parts(c); });
}

TEST_P(AttentionPartTest, ContradictorySizesAreABug) {
  const AttentionPartShape good{.samples = 1,
                                .q_len = 4,
                                .kv_len = 4,
                                .heads = 2,
                                .kv_heads = 1,
                                .head_dim = 8,
                                .causal = true,
                                .q_stride = 16,
                                .kv_stride = 8};
  EXPECT_NO_THROW(require_valid(good));
  const auto refused = [&](auto spoil) {
    AttentionPartShape bad = good;
    spoil(bad);
    EXPECT_THROW(kernels().attention_part({.shape = bad}, launch(1 << 20)), base::Bug);
    EXPECT_THROW(kernels().attention_part_backward({.shape = bad}, launch(1 << 20)), base::Bug);
  };
  refused([](AttentionPartShape& bad) { bad.kv_len = 5; });
  refused([](AttentionPartShape& bad) { bad.q_len = bad.kv_len = 0; });
  refused([](AttentionPartShape& bad) { bad.heads = 3, bad.kv_heads = 2; });
  refused([](AttentionPartShape& bad) { bad.q_stride = 15; });
  refused([](AttentionPartShape& bad) { bad.kv_stride = 7; });
  const std::vector<int32_t> begins(4);  // documents of which whoever chose the kernel did not know
  EXPECT_THROW(require_valid(good, {.begins = begins.data()}), base::Bug);
}

LOCKSTEP_ON_EVERY_DEVICE(AttentionPartTest);

}  // namespace
}  // namespace lockstep::kernels::testing
