#include "lockstep/program/role.h"

#include <gtest/gtest.h>

#include <functional>
#include <set>
#include <string>

#include "lockstep/base/error.h"
#include "lockstep/model/frame.h"

namespace lockstep::program {
namespace {

using model::Frame;

// The compiler writes a role, a segment asks its frame by the same word: the two lists say the same.
TEST(Role, IsTheWordByWhichSegmentsAsk) {
  struct Row {
    Role role;
    std::function<device::Tensor(const Frame&)> ask;
  };
  const Row rows[] = {
      {Role::batch, [](const Frame& f) { return f.batch("x"); }},
      {Role::in, [](const Frame& f) { return f.in("x"); }},
      {Role::out, [](const Frame& f) { return f.out("x"); }},
      {Role::save, [](const Frame& f) { return f.saved("x"); }},
      {Role::din, [](const Frame& f) { return f.din("x"); }},
      {Role::dout, [](const Frame& f) { return f.dout("x"); }},
      {Role::left, [](const Frame& f) { return f.left("x"); }},
      {Role::again, [](const Frame& f) { return f.again("x"); }},
      {Role::prep, [](const Frame& f) { return f.prepared("x"); }},
      {Role::scratch, [](const Frame& f) { return f.scratch("x"); }},
      {Role::weight, [](const Frame& f) { return f.weight("x"); }},
      {Role::grad, [](const Frame& f) { return f.grad("x"); }},
      {Role::buffer, [](const Frame& f) { return f.buffer("x"); }},
      {Role::stat, [](const Frame& f) { return f.statistic("x"); }},
      {Role::ring, [](const Frame& f) { return f.ring("x"); }},
      {Role::ringgrad, [](const Frame& f) { return f.ring_gradient("x"); }},
      {Role::across, [](const Frame& f) { return f.across("x"); }},
  };
  float places[std::size(rows)];
  Frame frame;
  for (size_t k = 0; k < std::size(rows); ++k)
    frame.bind(as(rows[k].role, "x"), {.data = &places[k], .shape = {1}});
  for (size_t k = 0; k < std::size(rows); ++k)
    EXPECT_EQ(rows[k].ask(frame).data, &places[k]) << name_of(rows[k].role);
  float of_slice;
  frame.bind(text_of({.role = Role::stat, .name = "x", .number = 2}), {.data = &of_slice, .shape = {1}});
  EXPECT_EQ(frame.statistic("x", 2).data, &of_slice);
}

TEST(Role, IsRecognizedByTheWholeFirstWord) {
  EXPECT_TRUE(is("grad.weight", Role::grad));
  EXPECT_TRUE(is("gradient.3", Role::gradient));
  for (const char* text : {"gradient.3", "gra.x", "grad", "grad-x", ""}) EXPECT_FALSE(is(text, Role::grad));
  EXPECT_FALSE(is("ringgrad.kv", Role::ring));
  EXPECT_EQ(name_in("out.hidden"), "hidden");
  EXPECT_EQ(name_in("stat.mean.2"), "mean.2");
}

TEST(Role, HasAWordOfItsOwn) {
  std::set<std::string> words;
  for (int k = 0; k <= static_cast<int>(Role::field); ++k) words.insert(name_of(static_cast<Role>(k)));
  EXPECT_EQ(words.size(), static_cast<size_t>(Role::field) + 1);
}

TEST(Use, SaysItsRoleAsText) {
  const std::pair<Use, const char*> rows[] = {
      {{.role = Role::in, .name = "hidden"}, "in.hidden"},
      {{.role = Role::sum, .block = 3, .number = 0}, "sum.3.0"},
      {{.role = Role::gradient, .block = 3}, "gradient.3"},
      {{.role = Role::gradient}, "gradient"},
      {{.role = Role::moment, .number = 1}, "moment.1"},
      {{.role = Role::stat, .name = "mean", .number = 2}, "stat.mean.2"},
      {{.role = Role::field, .name = "labels"}, "labels"},
      {{.role = Role::workspace}, "workspace"},
  };
  for (const auto& [use, text] : rows) EXPECT_EQ(text_of(use), text);
  for (const char* text : {"in.hidden", "save.mean.x", "ringgrad.kv"}) {
    EXPECT_EQ(text_of(named(7, text)), text);
    EXPECT_EQ(named(7, text).buffer, 7);
  }
  EXPECT_THROW(named(0, "elbow.x"), base::Bug);
}

}  // namespace
}  // namespace lockstep::program
