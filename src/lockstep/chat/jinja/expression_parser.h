// Expressions: {{ these }}, and what stands in tags. Precedence is Jinja's, which is not Python's everywhere.
#pragma once

#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lockstep/chat/jinja/run.h"
#include "lockstep/chat/jinja/token_reader.h"

namespace lockstep::chat::jinja {

// As they stand in the source; names in order.
struct ArgumentCode {
  std::vector<Expression> positional;
  std::vector<std::pair<std::string, Expression>> named;
  Expression more_positional, more_named;  // behind * and **; empty: none
  Arguments evaluate(Run& run) const;
};

class ExpressionParser {
 public:
  explicit ExpressionParser(TokenReader& tokens) : t_(tokens) {}
  Expression whole();                                 // with `a if b else c`
  Expression without_condition();                     // for a loop's `if`
  Expression tuple(bool with_condition);              // one, or several with commas
  ArgumentCode arguments();                           // behind "("
  Expression filters(Expression input);               // a chain of | and `is`
  std::pair<std::string, ArgumentCode> named_call();  // name, name(...): a filter
  // The variables that were read since the last time; `before` are there from now on.
  std::set<std::string> names_taken(std::set<std::string> before = {}) {
    return std::exchange(names_, std::move(before));
  }

 private:
  Expression condition();
  Expression either();
  Expression both();
  Expression negation();
  Expression comparison();
  Expression sum();
  Expression joined();
  Expression product();
  Expression power();
  Expression unary(bool with_filters);
  Expression primary();
  // Constant: no variable is in it. Jinja computes such an item when it reads the template, and what has no
  // slices is then undefined, which it refuses everywhere else.
  enum class Of { constant, variables };
  Expression postfix(Expression value, Of of);
  Expression subscript(Expression value, Of of);
  Expression test(Expression value);
  Expression bracketed();
  Expression list();
  Expression dict();
  Expression one_or_tuple(bool with_condition, bool explicit_parentheses);
  bool ends_tuple() const;

  TokenReader& t_;
  int depth_ = 0, variables_ = 0;
  std::set<std::string> names_;
};

}  // namespace lockstep::chat::jinja
