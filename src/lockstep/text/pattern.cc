#define PCRE2_CODE_UNIT_WIDTH 8
#include "lockstep/text/pattern.h"

#include <fmt/format.h>
#include <pcre2.h>

#include <functional>

#include "lockstep/base/error.h"
#include "lockstep/base/text.h"
#include "lockstep/text/fault.h"
#include "lockstep/text/unicode.h"
#include "lockstep/text/utf8.h"

namespace lockstep::text {

struct Pattern::Code {
  pcre2_code* code = nullptr;
  ~Code() { pcre2_code_free(code); }
};

namespace {

size_t behind_char(std::string_view text, size_t at) {
  for (++at; at < text.size() && continues_char(text[at]);) ++at;
  return at;
}

std::string message_of(int error) {
  PCRE2_UCHAR text[256];
  pcre2_get_error_message(error, text, sizeof text);
  return reinterpret_cast<const char*>(text);
}

}  // namespace

Pattern::Pattern(const std::string& pattern, Engine engine)
    : code_(std::make_unique<Code>()), source_(pattern) {
  const std::string written = written_out(pattern, engine);
  int error = 0;
  size_t place = 0;
  uint32_t options = PCRE2_UTF | PCRE2_UCP | PCRE2_NO_UTF_CHECK;
  if (engine == Engine::oniguruma) options |= PCRE2_MULTILINE;
  code_->code = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(written.data()), written.size(), options, &error,
                              &place, nullptr);
  if (code_->code == nullptr) {
    throw Fault{
        242, fmt::format(
                 "it splits by the pattern {}, which cannot be used: {}; take a tokenizer whose pattern is "
                 "written in the common syntax",
                 base::quoted(pattern, 200), message_of(error))};
  }
  pcre2_jit_compile(code_->code, PCRE2_JIT_COMPLETE);
}

Pattern::~Pattern() = default;

void Pattern::each_match(std::string_view text, const std::function<void(size_t, size_t)>& found) const {
  const std::unique_ptr<pcre2_match_data, decltype(&pcre2_match_data_free)> data(
      pcre2_match_data_create_from_pattern(code_->code, nullptr), pcre2_match_data_free);
  const std::unique_ptr<pcre2_match_context, decltype(&pcre2_match_context_free)> context(
      pcre2_match_context_create(nullptr), pcre2_match_context_free);
  const std::unique_ptr<pcre2_jit_stack, decltype(&pcre2_jit_stack_free)> stack(
      pcre2_jit_stack_create(size_t{64} << 10, size_t{64} << 20, nullptr), pcre2_jit_stack_free);
  pcre2_jit_stack_assign(context.get(), nullptr, stack.get());
  size_t last = SIZE_MAX;  // the end of the match before
  for (size_t at = 0; at <= text.size();) {
    const int count = pcre2_match(code_->code, reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(), at,
                                  PCRE2_NO_UTF_CHECK, data.get(), context.get());
    if (count == PCRE2_ERROR_NOMATCH) return;
    if (count < 0) {
      throw base::DataError(
          242, fmt::format("the pattern {} gives up at byte {} of a text: {}; take another tokenizer, or "
                           "shorter texts",
                           base::quoted(source_, 200), at, message_of(count)));
    }
    const size_t* place = pcre2_get_ovector_pointer(data.get());
    if (place[1] == place[0] && place[0] == last) {  // nothing, right behind a match: it counts for nothing
      at = behind_char(text, at);
      continue;
    }
    found(place[0], place[1]);
    last = place[1];
    at = place[1] > place[0] ? place[1] : behind_char(text, place[1]);
  }
}

}  // namespace lockstep::text
