// Documents that share samples: every kernel that is told of them gives each what it has alone.
#include <fmt/format.h>

#include <cstdlib>

#include "lockstep/kernels/attention/attention.h"
#include "lockstep/kernels/embedding/embedding.h"
#include "lockstep/kernels/testing.h"

namespace lockstep::kernels::testing {
namespace {

struct Row {
  int64_t seq_len, heads, kv_heads, head_dim;
  std::vector<std::vector<int64_t>> lengths;  // of documents, sample by sample
  ScoreOptions scores = {};
};

// Of one token, of whole tiles and beside them, one to a sample, many to a sample.
const std::vector<Row> kRows = {
    {8, 2, 2, 16, {{8}, {1, 1, 6}}},
    {40, 4, 2, 32, {{3, 17, 20}, {40}, {39, 1}}},
    {64, 4, 1, 64, {std::vector<int64_t>(32, 2)}},
    {300, 4, 4, 64, {{1, 64, 128, 107}, {129, 171}}},
    {520, 8, 2, 128, {{130, 65, 1, 324}, {200, 320}}},
    {1100, 6, 1, 64, {{1000, 100}, {550, 550}}},
    {2048, 4, 1, 128, {std::vector<int64_t>(64, 32)}},
    {70, 2, 1, 256, {{33, 37}}},
    {90, 2, 1, 64, {{50, 40}, {7, 83}}, {.window = 9}},
    {90, 2, 2, 64, {{50, 40}}, {.window = 33, .softcap = 1.5f, .scale = 0.3f}},
};

class DocumentsTest : public KernelTest {
 protected:
  struct Results {
    Values out, dqkv;
  };

  AttentionShape shape_of(const Row& row, DType type) {
    return {type,         static_cast<int64_t>(row.lengths.size()),
            row.seq_len,  row.heads,
            row.kv_heads, row.head_dim,
            row.scores};
  }

  Results attend(const AttentionShape& shape, const Values& qkv_values, const Values& dout_values,
                 const Documents& documents = {}) {
    const Memory qkv = upload(qkv_values, shape.type), dout = upload(dout_values, shape.type);
    const Memory out = garbage(dout.count(), shape.type), dqkv = garbage(qkv.count(), shape.type);
    const Memory lse = garbage(shape.rows() * shape.heads, DType::f32);
    const int64_t bytes = kernels().attention_workspace(shape);
    run({&out, &lse}, [&] {
      kernels().attention_forward({shape, qkv.data(), out.data(), lse.as<float>(), documents}, launch(bytes));
    });
    run({&dqkv}, [&] {
      kernels().attention_backward(
          {shape, qkv.data(), out.data(), dout.data(), lse.as<float>(), dqkv.data(), documents},
          launch(bytes));
    });
    return {download(out), download(dqkv)};
  }

  static Values part_of(const Values& all, int64_t row, int64_t rows, int64_t width) {
    return {all.begin() + row * width, all.begin() + (row + rows) * width};
  }
};

struct Places {
  std::vector<int32_t> begins, offsets;
};

Places places_of(const Row& row) {
  Places places;
  for (const std::vector<int64_t>& sample : row.lengths) {
    int32_t place = 0;
    for (const int64_t length : sample) {
      places.offsets.push_back(static_cast<int32_t>(places.begins.size()));
      places.begins.insert(places.begins.end(), static_cast<size_t>(length), place);
      place += static_cast<int32_t>(length);
    }
    EXPECT_EQ(place, row.seq_len);
  }
  const int64_t most = static_cast<int64_t>(row.lengths.size()) * most_documents(row.seq_len);
  places.offsets.resize(static_cast<size_t>(most) + 1, static_cast<int32_t>(places.begins.size()));
  return places;
}

void expect_near(const Values& actual, const Values& expected, DType type, const std::string& what) {
  double apart = 0, size = 0;
  for (size_t i = 0; i < expected.size(); ++i) {
    apart += (actual[i] - expected[i]) * (actual[i] - expected[i]);
    size += expected[i] * expected[i];
  }
  EXPECT_LE(std::sqrt(apart), (type == DType::f32 ? 1e-5 : 1.6e-2) * std::sqrt(size) + 1e-12) << what;
}

TEST_P(DocumentsTest, AttendAsIfAlone) {
  for (const DType type : {DType::f32, DType::bf16}) {
    for (const Row& row : kRows) {
      const AttentionShape whole = shape_of(row, type);
      const Places places = places_of(row);
      const Memory begins = upload_ints(places.begins), offsets = upload_ints(places.offsets);
      const int64_t width = whole.qkv_width(), out_width = whole.heads * whole.head_dim;
      const Values qkv = rounded(random_values(whole.rows() * width, 21), type);
      const Values dout = rounded(random_values(whole.rows() * out_width, 22), type);
      AttentionShape packed = whole;
      packed.documents = static_cast<int64_t>(places.offsets.size()) - 1;
      const auto compare = [&] {
        SCOPED_TRACE(fmt::format("{} seq {} heads {} of {} dim {} window {} by {}", name_of(type),
                                 row.seq_len, row.heads, row.kv_heads, row.head_dim, row.scores.window,
                                 kernels().attention_engine(packed)));
        const Results got = attend(packed, qkv, dout, {begins.as<int32_t>(), offsets.as<int32_t>()});
        for (size_t i = 0; places.offsets[i] < whole.rows(); ++i) {
          const int64_t first = places.offsets[i], length = places.offsets[i + 1] - first;
          AttentionShape one = whole;
          one.samples = 1;
          one.seq_len = length;
          const Results alone =
              attend(one, part_of(qkv, first, length, width), part_of(dout, first, length, out_width));
          const Values out = part_of(got.out, first, length, out_width),
                       dqkv = part_of(got.dqkv, first, length, width);
          if (on_cpu()) {
            EXPECT_EQ(out, alone.out);
            EXPECT_EQ(dqkv, alone.dqkv);
          }
          expect_near(out, alone.out, type, fmt::format("out of document {}", i));
          expect_near(dqkv, alone.dqkv, type, fmt::format("gradient of document {}", i));
        }
      };
      on_every_attention([&] { return kernels().attention_engine(packed); }, compare);
    }
  }
}

// Where FlashAttention is here, it computes packed documents too.
TEST_P(DocumentsTest, GoToFlashAttentionWhereItIs) {
  if (!kernels().attention_engine({DType::bf16, 1, 4096, 8, 2, 128}).starts_with("flash"))
    GTEST_SKIP() << "no FlashAttention here";
  AttentionShape packed{DType::bf16, 1, 4096, 8, 2, 128};
  packed.documents = most_documents(4096);
  EXPECT_TRUE(kernels().attention_engine(packed).starts_with("flash")) << kernels().attention_engine(packed);
  packed.type = DType::f32;
  EXPECT_EQ(kernels().attention_engine(packed), "own");
}

// Positions are counted from where a document begins.
TEST_P(DocumentsTest, BeginAtPositionZero) {
  const Row& row = kRows[1];
  const Places places = places_of(row);
  const Memory begins = upload_ints(places.begins);
  std::vector<int32_t> positions;
  for (size_t i = 0; i < places.begins.size(); ++i)
    positions.push_back(static_cast<int32_t>(i) % static_cast<int32_t>(row.seq_len) - places.begins[i]);
  const Memory stands = upload_ints(positions);
  const AttentionShape shape = shape_of(row, DType::f32);
  const Values qkv = random_values(shape.rows() * shape.qkv_width(), 23);
  const Memory table = upload(random_values(row.seq_len * row.head_dim, 24), DType::f32);
  const auto turned = [&](const int32_t* by_document, const int32_t* by_row) {
    const Memory values = upload(qkv, DType::f32);
    kernels().rope({.shape = shape,
                    .qkv = values.data(),
                    .table = table.as<float>(),
                    .row_positions = by_row,
                    .begins = by_document},
                   launch());
    return download(values);
  };
  EXPECT_EQ(turned(begins.as<int32_t>(), nullptr), turned(nullptr, stands.as<int32_t>()));

  const int64_t width = 24, vocab = 5, rows = shape.rows();
  const Memory tokens = upload_ints(std::vector<int32_t>(static_cast<size_t>(rows), 3));
  const Memory words = upload(random_values(vocab * width, 25), DType::f32);
  const Memory places_m = upload(random_values(row.seq_len * width, 26), DType::f32);
  const auto embedded = [&](const int32_t* by_document, const int32_t* by_row) {
    const Memory out = garbage(rows * width, DType::f32);
    Embedding op{DType::f32, shape.samples, row.seq_len, width, vocab, tokens.as<int32_t>(), words.data()};
    op.positions = places_m.data();
    op.out = out.data();
    op.row_positions = by_row;
    op.begins = by_document;
    kernels().embedding(op, launch());
    return download(out);
  };
  EXPECT_EQ(embedded(begins.as<int32_t>(), nullptr), embedded(nullptr, stands.as<int32_t>()));

  for (const bool accumulate : {false, true}) {
    const Values dout = random_values(rows * width, 27), before = random_values(row.seq_len * width, 28);
    Values expected = accumulate ? before : Values(before.size());
    for (size_t i = 0; i < dout.size(); ++i) {
      const size_t at = static_cast<size_t>(positions[i / static_cast<size_t>(width)] * width);
      expected[at + i % static_cast<size_t>(width)] += dout[i];
    }
    const Memory dout_m = upload(dout, DType::f32), gradient = upload(before, DType::f32);
    EmbeddingBackward op{DType::f32, shape.samples,        row.seq_len,  width,
                         vocab,      tokens.as<int32_t>(), dout_m.data()};
    op.dpositions = gradient.as<float>();
    op.position_rows = row.seq_len;
    op.accumulate = accumulate;
    op.begins = begins.as<int32_t>();
    kernels().embedding_backward(op, launch(kernels().embedding_workspace(rows, width)));
    expect_near(download(gradient), expected, DType::f32, "positions");
  }
}

LOCKSTEP_ON_EVERY_DEVICE(DocumentsTest);

}  // namespace
}  // namespace lockstep::kernels::testing
