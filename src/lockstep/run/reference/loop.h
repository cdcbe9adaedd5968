// Training and evaluation in fp64 by the words of a recipe. For tests.
//
//     Loop loop(words, samples_to_train_on, samples_to_evaluate, first_weights);
//     for (size_t step = 0; step < 5; ++step) loop.step(step);    // loss, norm and rate; loop.weights() move
#pragma once

#include <algorithm>
#include <cmath>
#include <map>
#include <string>
#include <vector>

#include "lockstep/run/reference/groups.h"
#include "lockstep/run/reference/models.h"

namespace lockstep::reference {

struct Sample {
  std::vector<int32_t> inputs, labels;  // a label of -1 counts for nothing
};

struct Report {
  double loss = 0, grad_norm = 0, rate = 0;
};

// The learning rate of a step, counted from 0.
inline double learning_rate(const Words& words, size_t step) {
  const double warmup = words.number("optim.warmup", 50),
               steps = words.number("optim.decay_steps", words.number("run.steps", 400));
  const double least = words.number("optim.min_lr", 0.1), now = static_cast<double>(step);
  const double ratio = words.number("batch.global", 64) / words.number("optim.base_batch", 64);
  const std::string schedule = words.text("optim.schedule", "cosine"),
                    scale = words.text("optim.lr_scale", "none");
  const double peak = words.number("optim.lr", 8e-3) * (scale == "linear" ? ratio
                                                        : scale == "sqrt" ? std::sqrt(ratio)
                                                                          : 1);
  if (now < warmup) return peak * (now + 1) / warmup;
  const double done = std::min(1.0, (now - warmup) / std::max(1.0, steps - warmup));
  if (schedule == "linear") return peak * (1 - (1 - least) * done);
  if (schedule == "cosine") return peak * (least + (1 - least) * (1 + std::cos(M_PI * done)) / 2);
  if (schedule == "inverse_sqrt")
    return peak * std::sqrt(std::max(1.0, warmup) / std::max({1.0, warmup, now}));
  if (schedule == "wsd") {
    const double decay = std::max(1.0, words.number("optim.decay_fraction", 0.2) * steps);
    const double begin = steps - decay;
    return peak * (1 - (1 - least) * std::clamp((now - begin) / decay, 0.0, 1.0));
  }
  return peak;
}

class Loop {
 public:
  Loop(Words words, std::vector<Sample> train, std::vector<Sample> eval, Weights weights)
      : words_(std::move(words)),
        train_(std::move(train)),
        eval_(std::move(eval)),
        weights_(std::move(weights)) {}

  // `applied`: false where the trainer had to skip the update, because a narrow gradient overflowed.
  Report step(size_t step, bool applied = true) {
    Report report{.rate = learning_rate(words_, step)};
    for (auto& [name, weight] : weights_) std::fill(weight->slope.begin(), weight->slope.end(), 0);
    const std::vector<Sample> batch = batch_of(step);
    const size_t slices = words_.count("batch.slices", 1), each = batch.size() / slices;
    const double labels = labels_in(batch);
    for (size_t s = 0; s < slices; ++s) {
      const std::vector<Sample> slice(batch.begin() + static_cast<std::ptrdiff_t>(s * each),
                                      batch.begin() + static_cast<std::ptrdiff_t>((s + 1) * each));
      Tape tape;
      const Node loss =
          loss_of(tape, slice, labels, {.step = step, .slice = static_cast<uint32_t>(s), .training = true});
      tape.backward(loss);
      report.loss += loss->value[0];
    }
    for (const auto& [name, weight] : weights_) {
      if (group_of(words_, name).frozen) continue;
      for (const double slope : weight->slope) report.grad_norm += slope * slope;
    }
    report.grad_norm = std::sqrt(report.grad_norm);
    const double most = words_.number("optim.clip", 1);
    const double clip = most > 0 ? std::min(1.0, most / (report.grad_norm + 1e-6)) : 1;
    if (!applied) return report;
    ++applied_;
    for (auto& [name, weight] : weights_) update(name, *weight, clip, report.rate);
    return report;
  }

  // Mean over the labels of the first log.eval_batches slices; the last of them may be shorter.
  double evaluate() {
    const size_t slice = words_.count("batch.global", 64) / words_.count("batch.slices", 1);
    const size_t count = std::min(eval_.size(), slice * words_.count("log.eval_batches", 32));
    const std::vector<Sample> samples(eval_.begin(), eval_.begin() + static_cast<std::ptrdiff_t>(count));
    double total = 0;
    for (const Sample& sample : samples) {
      Tape tape;
      total += loss_of(tape, {sample}, labels_in(samples), {})->value[0];
    }
    return total;
  }

  const Weights& weights() const { return weights_; }
  // Elements of a parameter whose step had a sign (lion) that rounding decides.
  bool undecided(const std::string& name, size_t i) const {
    const auto found = undecided_.find(name);
    return found != undecided_.end() && found->second[i];
  }

 private:
  static double labels_in(const std::vector<Sample>& samples) {
    double count = 0;
    for (const Sample& sample : samples)
      count += static_cast<double>(std::count_if(sample.labels.begin(), sample.labels.end(),
                                                 [](int32_t label) { return label >= 0; }));
    return count;
  }

  // Epoch after epoch, each in an order of its own; a batch may begin in one and end in the next.
  std::vector<Sample> batch_of(size_t step) const {
    const size_t global = words_.count("batch.global", 64), seed = words_.count("run.seed", 1);
    std::vector<Sample> batch;
    for (size_t position = step * global; position < (step + 1) * global; ++position) {
      batch.push_back(
          train_[permuted(train_.size(), seed, position / train_.size(), position % train_.size())]);
    }
    return batch;
  }

  Node loss_of(Tape& tape, const std::vector<Sample>& samples, double count, const Pass& pass) {
    std::vector<int32_t> inputs, labels;
    for (const Sample& sample : samples) {
      inputs.insert(inputs.end(), sample.inputs.begin(), sample.inputs.end());
      labels.insert(labels.end(), sample.labels.begin(), sample.labels.end());
    }
    LanguageModel model(words_, weights_);
    return tape.cross_entropy(model.logits(tape, inputs, samples[0].inputs.size(), pass), labels, count);
  }

  // Muon (Jordan et al.), as torch.optim.Muon writes it, step by step.
  void muon(const std::string& name, Matrix& weight, double clip, double rate, double decay) {
    const double beta = words_.number("optim.momentum", 0.9);
    const size_t rows = weight.rows, columns = weight.value.size() / rows;
    std::vector<double>& m = first_[name];
    m.resize(weight.value.size());
    std::vector<double> x(weight.value.size());
    double norm = 0;
    for (size_t i = 0; i < x.size(); ++i) {
      const double g = weight.slope[i] * clip;
      m[i] = beta * m[i] + (1 - beta) * g;
      x[i] = (1 - beta) * g + beta * m[i];
      norm += x[i] * x[i];
    }
    for (double& value : x) value /= std::max(std::sqrt(norm), 1e-7);
    // X becomes (a + b S + c S S) X with S = X X^T, for tall and wide alike.
    for (int step = 0; step < 5; ++step) {
      const std::vector<double> s = times(x, rows, columns, transposed(x, rows, columns), rows);
      const std::vector<double> s2 = times(s, rows, rows, s, rows);
      std::vector<double> by(s.size());
      for (size_t i = 0; i < s.size(); ++i) by[i] = -4.7750 * s[i] + 2.0315 * s2[i];
      std::vector<double> next = times(by, rows, rows, x, columns);
      for (size_t i = 0; i < x.size(); ++i) x[i] = 3.4445 * x[i] + next[i];
    }
    const double scale = std::sqrt(std::max(1.0, static_cast<double>(rows) / static_cast<double>(columns)));
    for (size_t i = 0; i < x.size(); ++i) weight.value[i] -= rate * (scale * x[i] + decay * weight.value[i]);
  }
  static std::vector<double> transposed(const std::vector<double>& a, size_t rows, size_t columns) {
    std::vector<double> t(a.size());
    for (size_t r = 0; r < rows; ++r)
      for (size_t c = 0; c < columns; ++c) t[c * rows + r] = a[r * columns + c];
    return t;
  }
  static std::vector<double> times(const std::vector<double>& a, size_t m, size_t k,
                                   const std::vector<double>& b, size_t n) {
    std::vector<double> c(m * n);
    for (size_t i = 0; i < m; ++i)
      for (size_t j = 0; j < n; ++j)
        for (size_t l = 0; l < k; ++l) c[i * n + j] += a[i * k + l] * b[l * n + j];
    return c;
  }

  // AdamW (Loshchilov and Hutter), SGD with momentum and decoupled decay, Lion (Chen et al.).
  void update(const std::string& name, Matrix& weight, double clip, double peak) {
    const Group group = group_of(words_, name);
    if (group.frozen) return;
    const double rate = peak * group.rate;
    std::string rule = group.rule;
    const double beta1 = words_.number("optim.beta1", 0.9), beta2 = words_.number("optim.beta2", 0.95);
    const double momentum = words_.number("optim.momentum", 0.9),
                 epsilon = words_.number("optim.epsilon", 1e-8);
    // Norms and biases are rows; what is a matrix decays.
    const bool decays = weight.rows > 1 || words_.flag("optim.decay_all", false);
    const double decay = group.decay.value_or(decays ? words_.number("optim.weight_decay", 0.1) : 0);
    if (rule == "muon") {
      const bool table = name.find("wte") != std::string::npos || name.find("wpe") != std::string::npos ||
                         name.find("embed") != std::string::npos || name.find("head") != std::string::npos;
      if (weight.rows > 1 && !table) return muon(name, weight, clip, rate, decay);
      rule = "adamw";
    }
    std::vector<double>&m = first_[name], &v = second_[name];
    m.resize(weight.value.size()), v.resize(weight.value.size());
    for (size_t i = 0; i < weight.value.size(); ++i) {
      double& p = weight.value[i];
      const double g = weight.slope[i] * clip;
      double direction = 0;
      if (rule == "adamw") {
        m[i] = beta1 * m[i] + (1 - beta1) * g;
        v[i] = beta2 * v[i] + (1 - beta2) * g * g;
        const double mean = m[i] / (1 - std::pow(beta1, applied_)),
                     square = v[i] / (1 - std::pow(beta2, applied_));
        direction = mean / (std::sqrt(square) + epsilon);
      } else if (rule == "sgd") {
        direction = m[i] = momentum * m[i] + g;
      } else {
        const double towards = beta1 * m[i] + (1 - beta1) * g;
        direction = towards > 0 ? 1 : towards < 0 ? -1 : 0;
        if (towards != 0 && std::fabs(towards) < 1e-7) {
          undecided_[name].resize(weight.value.size());
          undecided_[name][i] = true;
        }
        m[i] = beta2 * m[i] + (1 - beta2) * g;
      }
      p -= rate * (direction + decay * p);
    }
  }

  const Words words_;
  const std::vector<Sample> train_, eval_;
  Weights weights_;
  double applied_ = 0;                                         // updates
  std::map<std::string, std::vector<double>> first_, second_;  // moments
  std::map<std::string, std::vector<bool>> undecided_;
};

}  // namespace lockstep::reference
