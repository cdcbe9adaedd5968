// A question to a disk or file server that may not answer: a dead NFS mount holds up whoever looks into it,
// for ever and without a word.
//
//     const bool there = patiently("runs/first", [=] { return std::filesystem::exists("runs/first"); });
//
// The question is asked by a thread of its own, which is left behind when patience ends; so it must own all
// that it uses.
#pragma once

#include <fmt/format.h>

#include <chrono>
#include <functional>
#include <future>
#include <memory>
#include <string>
#include <thread>

#include "lockstep/base/error.h"
#include "lockstep/base/text.h"

namespace lockstep::see {

constexpr std::chrono::seconds kPatienceWithDisks{5};

// What `question` returns or throws. IoError 768: no answer in time, naming `path`.
template <class Question>
auto patiently(const std::string& path, Question question,
               std::chrono::milliseconds patience = kPatienceWithDisks) {
  using Result = decltype(question());
  const auto task = std::make_shared<std::packaged_task<Result()>>(std::move(question));
  std::future<Result> answer = task->get_future();
  std::thread([task] { (*task)(); }).detach();
  if (answer.wait_for(patience) == std::future_status::ready) return answer.get();
  throw base::IoError(768,
                      fmt::format("the disk or file server of {} has not answered for {}", base::quoted(path),
                                  base::human_duration(std::chrono::duration<double>(patience).count())));
}

}  // namespace lockstep::see
