// Matrices in fp64 and the plainest way back through what was computed with them. For tests.
//
// Nothing in this folder but session.h includes anything of Lockstep or LibTorch: it is written from the
// papers and the docs, as slow and as obvious as can be, so that a fault of the trainer cannot be shared by
// what it is compared with.
//
//     Tape tape;
//     const Node y = tape.product(x, w, Tape::Stored::in_out);   // [rows, in] x [in, out]
//     tape.backward(tape.cross_entropy(y, labels, count));       // x->slope, w->slope
#pragma once

#include <cmath>
#include <cstdint>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

namespace lockstep::reference {

// Values and, once backward() has run, the derivative of the loss by each of them.
struct Matrix {
  size_t rows = 0, columns = 0;
  std::vector<double> value, slope;
  Matrix(size_t r, size_t c) : rows(r), columns(c), value(r * c), slope(r * c) {}
  double& at(size_t r, size_t c) { return value[r * columns + c]; }
  double& by(size_t r, size_t c) { return slope[r * columns + c]; }
};
using Node = std::shared_ptr<Matrix>;
inline Node matrix(size_t rows, size_t columns) { return std::make_shared<Matrix>(rows, columns); }

// How many heads attend, and how wide each is.
struct Heads {
  size_t seq_len, queries, keys, width;
};

class Tape {
 public:
  enum class Stored { in_out, out_in };  // a weight's rows: what it takes (Conv1D), or what it gives (Linear)

  void backward(const Node& loss) {
    loss->slope[0] = 1;
    for (auto step = steps_.rbegin(); step != steps_.rend(); ++step) (*step)();
  }

  Node product(const Node& x, const Node& w, Stored stored) {
    const bool flipped = stored == Stored::out_in;
    const size_t in = x->columns, out = flipped ? w->rows : w->columns;
    const Node y = matrix(x->rows, out);
    const auto each = [=](const auto& action) {
      for (size_t r = 0; r < x->rows; ++r)
        for (size_t n = 0; n < out; ++n)
          for (size_t k = 0; k < in; ++k) action(r, k, n, flipped ? n * in + k : k * out + n);
    };
    each([&](size_t r, size_t k, size_t n, size_t at) { y->at(r, n) += x->at(r, k) * w->value[at]; });
    steps_.push_back([=] {
      each([&](size_t r, size_t k, size_t n, size_t at) {
        x->by(r, k) += y->by(r, n) * w->value[at];
        w->slope[at] += y->by(r, n) * x->at(r, k);
      });
    });
    return y;
  }

  Node plus(const Node& a, const Node& b) {
    const Node y = matrix(a->rows, a->columns);
    for (size_t i = 0; i < y->value.size(); ++i) y->value[i] = a->value[i] + b->value[i];
    steps_.push_back([=] {
      for (size_t i = 0; i < y->slope.size(); ++i) a->slope[i] += y->slope[i], b->slope[i] += y->slope[i];
    });
    return y;
  }

  Node plus_row(const Node& x, const Node& row) {
    const Node y = matrix(x->rows, x->columns);
    for (size_t r = 0; r < x->rows; ++r)
      for (size_t c = 0; c < x->columns; ++c) y->at(r, c) = x->at(r, c) + row->value[c];
    steps_.push_back([=] {
      for (size_t r = 0; r < x->rows; ++r)
        for (size_t c = 0; c < x->columns; ++c) x->by(r, c) += y->by(r, c), row->slope[c] += y->by(r, c);
    });
    return y;
  }

  Node rows_of(const Node& table, const std::vector<size_t>& which) {
    const Node y = matrix(which.size(), table->columns);
    for (size_t r = 0; r < which.size(); ++r)
      for (size_t c = 0; c < table->columns; ++c) y->at(r, c) = table->at(which[r], c);
    steps_.push_back([=] {
      for (size_t r = 0; r < which.size(); ++r)
        for (size_t c = 0; c < table->columns; ++c) table->by(which[r], c) += y->by(r, c);
    });
    return y;
  }

  Node columns_of(const Node& x, size_t first, size_t count) {
    const Node y = matrix(x->rows, count);
    for (size_t r = 0; r < x->rows; ++r)
      for (size_t c = 0; c < count; ++c) y->at(r, c) = x->at(r, first + c);
    steps_.push_back([=] {
      for (size_t r = 0; r < x->rows; ++r)
        for (size_t c = 0; c < count; ++c) x->by(r, first + c) += y->by(r, c);
    });
    return y;
  }

  // Every element times a number of its own that nothing depends on.
  Node scaled(const Node& x, const std::vector<double>& factors) {
    const Node y = matrix(x->rows, x->columns);
    for (size_t i = 0; i < y->value.size(); ++i) y->value[i] = x->value[i] * factors[i];
    steps_.push_back([=] {
      for (size_t i = 0; i < y->slope.size(); ++i) x->slope[i] += y->slope[i] * factors[i];
    });
    return y;
  }

  // LayerNorm with its bias; RMSNorm without one.
  Node norm(const Node& x, const Node& weight, const Node& bias, double epsilon) {
    const Node y = matrix(x->rows, x->columns);
    const size_t n = x->columns;
    std::vector<double> scales(x->rows), means(x->rows);
    for (size_t r = 0; r < x->rows; ++r) {
      double mean = 0, square = 0;
      for (size_t c = 0; bias && c < n; ++c) mean += x->at(r, c) / static_cast<double>(n);
      for (size_t c = 0; c < n; ++c) square += std::pow(x->at(r, c) - mean, 2) / static_cast<double>(n);
      means[r] = mean;
      scales[r] = 1 / std::sqrt(square + epsilon);
      for (size_t c = 0; c < n; ++c)
        y->at(r, c) = (x->at(r, c) - mean) * scales[r] * weight->value[c] + (bias ? bias->value[c] : 0);
    }
    steps_.push_back([=] {
      for (size_t r = 0; r < x->rows; ++r) {
        double along = 0, sum = 0;  // of the derivatives by the normed values
        for (size_t c = 0; c < n; ++c) {
          const double normed = (x->at(r, c) - means[r]) * scales[r], by = y->by(r, c);
          weight->slope[c] += by * normed;
          if (bias) bias->slope[c] += by;
          along += by * weight->value[c] * normed / static_cast<double>(n);
          sum += by * weight->value[c] / static_cast<double>(n);
        }
        for (size_t c = 0; c < n; ++c) {
          const double normed = (x->at(r, c) - means[r]) * scales[r];
          x->by(r, c) += scales[r] * (y->by(r, c) * weight->value[c] - (bias ? sum : 0) - normed * along);
        }
      }
    });
    return y;
  }

  // GELU by tanh, as GPT-2 has it.
  Node gelu(const Node& x) {
    return mapped(x, [](double v) {
      const double root = std::sqrt(2 / M_PI), t = std::tanh(root * (v + 0.044715 * v * v * v));
      const double slope = 0.5 * (1 + t) + 0.5 * v * (1 - t * t) * root * (1 + 3 * 0.044715 * v * v);
      return std::pair(0.5 * v * (1 + t), slope);
    });
  }
  Node silu(const Node& x) {
    return mapped(x, [](double v) {
      const double s = 1 / (1 + std::exp(-v));
      return std::pair(v * s, s * (1 + v * (1 - s)));
    });
  }
  Node times(const Node& a, const Node& b) {
    const Node y = matrix(a->rows, a->columns);
    for (size_t i = 0; i < y->value.size(); ++i) y->value[i] = a->value[i] * b->value[i];
    steps_.push_back([=] {
      for (size_t i = 0; i < y->slope.size(); ++i) {
        a->slope[i] += y->slope[i] * b->value[i];
        b->slope[i] += y->slope[i] * a->value[i];
      }
    });
    return y;
  }

  // Rotary positions as Hugging Face's Llama has them: elements i and i + width / 2 of each head turn
  // together.
  Node rotated(const Node& x, size_t seq_len, size_t width, double theta) {
    const Node y = matrix(x->rows, x->columns);
    const auto each = [=](const auto& action) {
      for (size_t r = 0; r < x->rows; ++r)
        for (size_t head = 0; head < x->columns; head += width)
          for (size_t i = 0; i < width / 2; ++i) {
            const double turn = std::pow(theta, -2.0 * static_cast<double>(i) / static_cast<double>(width));
            const double angle = static_cast<double>(r % seq_len) * turn;
            action(r, head + i, head + i + width / 2, std::cos(angle), std::sin(angle));
          }
    };
    each([&](size_t r, size_t a, size_t b, double cosine, double sine) {
      y->at(r, a) = x->at(r, a) * cosine - x->at(r, b) * sine;
      y->at(r, b) = x->at(r, b) * cosine + x->at(r, a) * sine;
    });
    steps_.push_back([=] {
      each([&](size_t r, size_t a, size_t b, double cosine, double sine) {
        x->by(r, a) += y->by(r, a) * cosine + y->by(r, b) * sine;
        x->by(r, b) += y->by(r, b) * cosine - y->by(r, a) * sine;
      });
    });
    return y;
  }

  // softmax(q k^T / sqrt(width)) v, each position looking at itself and what came before; rows are samples of
  // seq_len.
  Node attention(const Node& q, const Node& k, const Node& v, const Heads& heads) {
    const Node y = matrix(q->rows, q->columns);
    const double scale = 1 / std::sqrt(static_cast<double>(heads.width));
    const size_t group = heads.queries / heads.keys;  // heads that share keys and values
    // One row of one head: its weights, given to `action` with where it and what it looks at begin.
    const auto each = [=](const auto& action) {
      for (size_t r = 0; r < q->rows; ++r)
        for (size_t h = 0; h < heads.queries; ++h) {
          const size_t first = r / heads.seq_len * heads.seq_len, to = h * heads.width,
                       from = h / group * heads.width;
          std::vector<double> weights(r - first + 1);
          double highest = -INFINITY, total = 0;
          for (size_t j = first; j <= r; ++j) {
            double dot = 0;
            for (size_t c = 0; c < heads.width; ++c) dot += q->at(r, to + c) * k->at(j, from + c);
            weights[j - first] = dot * scale;
            highest = std::fmax(highest, dot * scale);
          }
          for (double& w : weights) total += w = std::exp(w - highest);
          for (double& w : weights) w /= total;
          action(r, first, to, from, weights);
        }
    };
    each([&](size_t r, size_t first, size_t to, size_t from, const std::vector<double>& weights) {
      for (size_t j = first; j <= r; ++j)
        for (size_t c = 0; c < heads.width; ++c) y->at(r, to + c) += weights[j - first] * v->at(j, from + c);
    });
    steps_.push_back([=] {
      each([&](size_t r, size_t first, size_t to, size_t from, const std::vector<double>& weights) {
        std::vector<double> by(weights.size());
        double mean = 0;
        for (size_t j = first; j <= r; ++j) {
          for (size_t c = 0; c < heads.width; ++c) {
            by[j - first] += y->by(r, to + c) * v->at(j, from + c);
            v->by(j, from + c) += y->by(r, to + c) * weights[j - first];
          }
          mean += by[j - first] * weights[j - first];
        }
        for (size_t j = first; j <= r; ++j) {
          const double score = weights[j - first] * (by[j - first] - mean) * scale;
          for (size_t c = 0; c < heads.width; ++c) {
            q->by(r, to + c) += score * k->at(j, from + c);
            k->by(j, from + c) += score * q->at(r, to + c);
          }
        }
      });
    });
    return y;
  }

  // Sum of -log softmax at the labels over `count`; a label of -1 counts for nothing.
  Node cross_entropy(const Node& logits, const std::vector<int32_t>& labels, double count) {
    const Node loss = matrix(1, 1), chances = matrix(logits->rows, logits->columns);
    for (size_t r = 0; r < logits->rows; ++r) {
      double highest = -INFINITY, total = 0;
      for (size_t c = 0; c < logits->columns; ++c) highest = std::fmax(highest, logits->at(r, c));
      for (size_t c = 0; c < logits->columns; ++c)
        total += chances->at(r, c) = std::exp(logits->at(r, c) - highest);
      for (size_t c = 0; c < logits->columns; ++c) chances->at(r, c) /= total;
      if (labels[r] >= 0) loss->value[0] -= std::log(chances->at(r, static_cast<size_t>(labels[r]))) / count;
    }
    steps_.push_back([=] {
      for (size_t r = 0; r < logits->rows; ++r)
        for (size_t c = 0; labels[r] >= 0 && c < logits->columns; ++c) {
          const double here = static_cast<size_t>(labels[r]) == c ? 1 : 0;
          logits->by(r, c) += loss->slope[0] * (chances->at(r, c) - here) / count;
        }
    });
    return loss;
  }

 private:
  template <class Function>  // value to (value, slope)
  Node mapped(const Node& x, const Function& function) {
    const Node y = matrix(x->rows, x->columns);
    for (size_t i = 0; i < y->value.size(); ++i) y->value[i] = function(x->value[i]).first;
    steps_.push_back([=] {
      for (size_t i = 0; i < y->slope.size(); ++i) x->slope[i] += y->slope[i] * function(x->value[i]).second;
    });
    return y;
  }

  std::vector<std::function<void()>> steps_;  // back through each operation, to be run from the last
};

}  // namespace lockstep::reference
