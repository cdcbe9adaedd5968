#include "lockstep/run/executor/owners.h"

#include <memory>

#include "lockstep/base/error.h"
#include "lockstep/program/owners.h"

namespace lockstep::run {

using device::CopyKind;
using device::DType;
using device::Tensor;
using program::Instruction;
using program::Owned;
using program::Role;
using program::Use;

namespace {

constexpr int64_t kBytes = 4;  // gradients and masters are fp32

// A run of a parameter that a tensor rank holds: rows of it, in the whole and in the part.
struct Strip {
  int64_t whole = 0, part = 0;              // begins, in elements
  int64_t whole_pitch = 0, part_pitch = 0;  // from row to row
  int64_t width = 0, rows = 0;
};

// Along the dimension that is cut, a rank has its part of each group.
std::vector<Strip> strips_of(const model::Cut& cut, const device::Shape& whole, int rank) {
  int64_t rows = 1, inner = 1;
  for (int d = 0; d < whole.rank(); ++d) (d < cut.dim ? rows : inner) *= d == cut.dim ? 1 : whole[d];
  const int64_t length = whole[cut.dim];
  std::vector<int64_t> sizes = cut.sizes;
  if (sizes.empty()) sizes.assign(static_cast<size_t>(cut.groups), length / cut.groups);
  std::vector<Strip> strips;
  int64_t begin = 0, held = 0;
  for (const int64_t size : sizes) {
    const int64_t own = size / cut.parts;
    strips.push_back({.whole = (begin + rank * own) * inner,
                      .part = held * inner,
                      .whole_pitch = length * inner,
                      .part_pitch = length / cut.parts * inner,
                      .width = own * inner,
                      .rows = rows});
    begin += size;
    held += own;
  }
  return strips;
}

// The exchange of one region, prepared.
class Exchange {
 public:
  Exchange(const BindContext& context, const model::BlockLayout& layout, const Instruction& i, int region)
      : layout_(layout),
        device_(context.device),
        group_(context.options.ranks->group(i.among, i.lane)),
        stream_(context.streams.at(i.lane)),
        owned_(program::owned_parameters(layout, layout.regions[static_cast<size_t>(region)],
                                         context.program.held_values(layout, i.block), context.program.parts,
                                         i.block)),
        first_(context.program.held_values(layout, i.block).begin),
        staging_(find(context, i.writes, Role::staging, "")) {}

  static Tensor find(const BindContext& context, const std::vector<Use>& uses, Role role,
                     const std::string& name) {
    for (const Use& use : uses) {
      if (use.role == role && use.name == name) return context.memory.tensor(use.buffer);
    }
    LS_ASSERT(false, std::string("no ") + name_of(role));
    return {};
  }

  // Parts in `own` (this rank's values of the block) become whole ones in `whole`.
  void gather(const float* own, float* whole) const {
    for (const auto& round : program::rounds_of(owned_, group_.size())) {
      const Owned* mine = round[static_cast<size_t>(group_.rank())];
      std::vector<Tensor> send, recv;
      for (int q = 0; q < group_.size(); ++q) {
        send.push_back(part(const_cast<float*>(own), round[static_cast<size_t>(q)]));
        recv.push_back(staged(mine, q));
      }
      group_.all_to_all(send, recv, stream_);
      if (mine != nullptr) copy(*mine, whole + mine->at, true);
    }
  }

  void scatter(const float* whole, float* own) const {
    for (const auto& round : program::rounds_of(owned_, group_.size())) {
      const Owned* mine = round[static_cast<size_t>(group_.rank())];
      if (mine != nullptr) copy(*mine, const_cast<float*>(whole) + mine->at, false);
      std::vector<Tensor> send, recv;
      for (int q = 0; q < group_.size(); ++q) {
        send.push_back(staged(mine, q));
        recv.push_back(part(own, round[static_cast<size_t>(q)]));
      }
      group_.all_to_all(send, recv, stream_);
    }
  }

  // Of everything that was exchanged: from masters to what products read.
  void round(const kernels::Kernels& kernels, const float* masters, char* copies, DType type) const {
    for (const Owned& one : owned_) {
      const int64_t at = offset(one);
      kernels.cast({DType::f32, type, one.part_elements, masters + at, copies + at * device::size_of(type)},
                   {.stream = stream_});
    }
  }

 private:
  const model::PlacedParam& param(const Owned& one) const {
    return layout_.params[static_cast<size_t>(one.param)];
  }
  int64_t offset(const Owned& one) const { return param(one).offset - first_; }
  Tensor part(float* values, const Owned* one) const {
    if (one == nullptr) return {nullptr, DType::f32, {0}};
    return {values + offset(*one), DType::f32, {one->part_elements}};
  }
  Tensor staged(const Owned* one, int rank) const {
    if (one == nullptr) return {nullptr, DType::f32, {0}};
    return {staging_.as<float>() + rank * one->part_elements, DType::f32, {one->part_elements}};
  }
  // Between the parts in staging and the whole.
  void copy(const Owned& one, float* whole, bool together) const {
    for (int q = 0; q < group_.size(); ++q) {
      float* const part = staged(&one, q).as<float>();
      for (const Strip& s : strips_of(param(one).spec.cut, one.whole, q)) {
        float *const there = whole + s.whole, *const here = part + s.part;
        const int64_t there_pitch = s.whole_pitch * kBytes, here_pitch = s.part_pitch * kBytes;
        if (together) {
          device_.copy_rows(there, there_pitch, here, here_pitch, s.width * kBytes, s.rows, stream_);
        } else {
          device_.copy_rows(here, here_pitch, there, there_pitch, s.width * kBytes, s.rows, stream_);
        }
      }
    }
  }

  const model::BlockLayout& layout_;
  device::Device& device_;
  comm::Group& group_;
  device::Stream stream_;
  std::vector<Owned> owned_;
  int64_t first_;  // element of the block that this rank's values begin with
  Tensor staging_;
};

}  // namespace

std::function<void()> bind_to_owners(const BindContext& context, const model::BlockLayout& layout,
                                     const Instruction& i, const OwnValues& own) {
  const auto exchange = std::make_shared<Exchange>(context, layout, i, i.get<program::ToOwners>()->region);
  const auto* gradient = reinterpret_cast<const float*>(own(i.reads[0].buffer));
  const auto* master = reinterpret_cast<const float*>(own(i.reads[1].buffer));
  auto* const gradients = Exchange::find(context, i.writes, Role::whole, "gradient").as<float>();
  auto* const masters = Exchange::find(context, i.writes, Role::whole, "master").as<float>();
  return [=] {
    exchange->gather(gradient, gradients);
    exchange->gather(master, masters);
  };
}

std::function<void()> bind_from_owners(const BindContext& context, const model::BlockLayout& layout,
                                       const Instruction& i, const OwnValues& own) {
  const auto exchange = std::make_shared<Exchange>(context, layout, i, i.get<program::FromOwners>()->region);
  const auto* whole = Exchange::find(context, i.reads, Role::whole, "master").as<const float>();
  auto* const master = reinterpret_cast<float*>(own(i.writes[0].buffer));
  const DType type = context.model.compute;
  char* copies = nullptr;
  for (const Use& use : i.writes) {
    if (use.role == Role::compute) copies = own(use.buffer);
  }
  const kernels::Kernels* kernels = &kernels::kernels_for(context.device.id().kind);
  return [=] {
    exchange->scatter(whole, master);
    if (copies != nullptr) exchange->round(*kernels, master, copies, type);
  };
}

}  // namespace lockstep::run
