// Weights of a session, for the reference to begin with and to be compared with. For tests.
#pragma once

#include <memory>
#include <vector>

#include "lockstep/run/reference/models.h"
#include "lockstep/run/session/session.h"

namespace lockstep::reference {

inline Node read_back(const run::Session& session, const run::Parameters::Named& param) {
  const device::Shape& shape = param.shape;
  const auto rows = static_cast<size_t>(shape.rank() > 1 ? shape[0] : 1);
  const Node values = matrix(rows, static_cast<size_t>(shape.numel()) / rows);
  std::vector<float> host(values->value.size());
  session.parameters->read(param.master.values, host.data());
  values->value.assign(host.begin(), host.end());
  return values;
}

inline Weights read_back(const run::Session& session) {
  Weights weights;
  for (const run::Parameters::Named& param : session.parameters->named())
    weights[param.name] = read_back(session, param);
  return weights;
}

inline Weights copy_of(const Weights& weights) {
  Weights copy;
  for (const auto& [name, values] : weights) copy[name] = std::make_shared<Matrix>(*values);
  return copy;
}

// Away from the first values, so that norms are not 1, biases are not 0 and every one of them matters.
inline void stir(const run::Session& session) {
  uint64_t key = 0;
  for (const run::Parameters::Named& param : session.parameters->named()) {
    std::vector<float> host(static_cast<size_t>(param.master.values.numel()));
    session.parameters->read(param.master.values, host.data());
    for (float& value : host) value += 0.4f * (static_cast<float>(split_mix(++key) >> 40) / (1 << 24) - 0.5f);
    session.parameters->write(param.master.values, host.data());
  }
  session.parameters->refresh_compute();
}

}  // namespace lockstep::reference
