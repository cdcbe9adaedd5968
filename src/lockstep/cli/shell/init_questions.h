// The questions of `lockstep init` on a terminal, and the short recipe that follows from the answers.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace lockstep::cli {

// Shows a question with the answer that Enter stands for; nothing: the answers have ended.
using Ask =
    std::function<std::optional<std::string>(const std::string& question, const std::string& otherwise)>;

using Chosen =
    std::vector<std::pair<std::string, std::string>>;  // "run.steps" and "400", as TOML writes values

// Nothing: the answers ended too early. An answer that cannot be used is asked for again, with the reason.
std::optional<Chosen> ask_for_recipe(const std::string& name, const Ask& ask,
                                     const std::function<void(const std::string&)>& say);

// Those keys by section, each with its meaning; the rest keeps its defaults.
std::string short_recipe(const Chosen& chosen);

}  // namespace lockstep::cli
