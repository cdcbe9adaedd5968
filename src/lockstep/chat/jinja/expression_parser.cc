#include "lockstep/chat/jinja/expression_parser.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "lockstep/chat/jinja/operations.h"

namespace lockstep::chat::jinja {

namespace {

constexpr int kDeepest = 200;

Expression constant(Value value) {
  return [value = std::move(value)](Run&) { return value; };
}

}  // namespace

Arguments ArgumentCode::evaluate(Run& run) const {
  Arguments arguments;
  for (const Expression& one : positional) arguments.positional.push_back(one(run));
  if (more_positional) {
    for (Value& one : items_of(more_positional(run))) arguments.positional.push_back(std::move(one));
  }
  for (const auto& [name, one] : named) arguments.named.emplace_back(name, one(run));
  if (more_named) {
    const Value given = more_named(run);
    const Dict* dict = given.get<Dict>();
    if (dict == nullptr) fail("behind ** stands a dictionary");
    for (const auto& [name, value] : dict->items) arguments.named.emplace_back(to_str(name), value);
  }
  return arguments;
}

Expression ExpressionParser::whole() {
  if (++depth_ > kDeepest) t_.refuse("an expression is nested too deeply");
  Expression result = condition();
  --depth_;
  return result;
}

Expression ExpressionParser::without_condition() { return either(); }

Expression ExpressionParser::condition() {
  Expression first = either();
  while (t_.skip_word("if")) {
    Expression when = either(), otherwise;
    if (t_.skip_word("else")) otherwise = whole();
    first = [first, when, otherwise, line = t_.now().line](Run& run) -> Value {
      if (is_true(when(run))) return first(run);
      if (otherwise) return otherwise(run);
      return Undefined{fmt::format(
          "the inline if-expression on line {} evaluated to false and no else section was defined", line)};
    };
  }
  return first;
}

Expression ExpressionParser::either() {
  Expression left = both();
  while (t_.skip_word("or")) {
    left = [left, right = both()](Run& run) {
      Value value = left(run);
      return is_true(value) ? value : right(run);
    };
  }
  return left;
}

Expression ExpressionParser::both() {
  Expression left = negation();
  while (t_.skip_word("and")) {
    left = [left, right = negation()](Run& run) {
      Value value = left(run);
      return is_true(value) ? right(run) : value;
    };
  }
  return left;
}

Expression ExpressionParser::negation() {
  if (!t_.skip_word("not")) return comparison();
  if (++depth_ > kDeepest) t_.refuse("an expression is nested too deeply");
  Expression of = negation();
  --depth_;
  return [of](Run& run) { return Value(!is_true(of(run))); };
}

namespace {

using Comparison = bool (*)(const Value&, const Value&);

Comparison comparison_of(std::string_view symbol) {
  if (symbol == "==") return [](const Value& a, const Value& b) { return is_equal(a, b); };
  if (symbol == "!=") return [](const Value& a, const Value& b) { return !is_equal(a, b); };
  if (symbol == "<") return [](const Value& a, const Value& b) { return compare(a, b) < 0; };
  if (symbol == "<=") return [](const Value& a, const Value& b) { return compare(a, b) <= 0; };
  if (symbol == ">") return [](const Value& a, const Value& b) { return compare(a, b) > 0; };
  if (symbol == ">=") return [](const Value& a, const Value& b) { return compare(a, b) >= 0; };
  return nullptr;
}

}  // namespace

Expression ExpressionParser::comparison() {
  Expression left = sum();
  std::vector<std::pair<Comparison, Expression>> chain;
  for (;;) {
    Comparison known = t_.is(TokenKind::symbol) ? comparison_of(t_.now().text) : nullptr;
    if (known != nullptr) {
      t_.take();
    } else if (t_.skip_word("in")) {
      known = [](const Value& a, const Value& b) { return contains(b, a); };
    } else if (t_.is_word("not") && t_.then().kind == TokenKind::name && t_.then().text == "in") {
      t_.take();
      t_.take();
      known = [](const Value& a, const Value& b) { return !contains(b, a); };
    } else {
      break;
    }
    chain.emplace_back(known, sum());
  }
  if (chain.empty()) return left;
  return [left, chain](Run& run) {  // a < b < c: b is computed once
    Value before = left(run);
    for (const auto& [holds, next] : chain) {
      Value value = next(run);
      if (!holds(before, value)) return Value(false);
      before = std::move(value);
    }
    return Value(true);
  };
}

namespace {

Expression operation(std::string symbol, Expression a, Expression b) {
  return [symbol = std::move(symbol), a = std::move(a), b = std::move(b)](Run& run) {
    run.step();
    const Value left = a(run);
    return binary(symbol, left, b(run));
  };
}

}  // namespace

Expression ExpressionParser::sum() {
  Expression left = joined();
  while (t_.is_symbol("+") || t_.is_symbol("-")) {
    const std::string symbol = t_.take().text;
    left = operation(symbol, left, joined());
  }
  return left;
}

Expression ExpressionParser::joined() {
  std::vector<Expression> all = {product()};
  while (t_.skip_symbol("~")) all.push_back(product());
  if (all.size() == 1) return all[0];
  return [all](Run& run) {
    std::string text;
    for (const Expression& one : all) grow(text, to_str(one(run)));
    return Value(text);
  };
}

Expression ExpressionParser::product() {
  Expression left = power();
  while (t_.is_symbol("*") || t_.is_symbol("/") || t_.is_symbol("//") || t_.is_symbol("%")) {
    const std::string symbol = t_.take().text;
    left = operation(symbol, left, power());
  }
  return left;
}

Expression ExpressionParser::power() {
  Expression left = unary(true);
  while (t_.skip_symbol("**")) left = operation("**", left, unary(true));
  return left;
}

Expression ExpressionParser::unary(bool with_filters) {
  if (++depth_ > kDeepest) t_.refuse("an expression is nested too deeply");
  Expression value;
  const int before = variables_;
  if (t_.skip_symbol("-")) {
    value = [of = unary(false)](Run& run) { return negated(of(run)); };
  } else if (t_.skip_symbol("+")) {
    value = [of = unary(false)](Run& run) { return negated(negated(of(run))); };
  } else {
    value = primary();
  }
  value = postfix(std::move(value), variables_ == before ? Of::constant : Of::variables);
  if (with_filters) value = filters(std::move(value));
  --depth_;
  return value;
}

Expression ExpressionParser::primary() {
  const Token token = t_.now();
  switch (token.kind) {
    case TokenKind::name:
      t_.take();
      if (token.text == "true" || token.text == "True") return constant(true);
      if (token.text == "false" || token.text == "False") return constant(false);
      if (token.text == "none" || token.text == "None") return constant(None{});
      names_.insert(token.text), ++variables_;
      return [name = token.text](Run& run) -> Value {
        const Value* found = run.scope->find(name);
        return found != nullptr ? *found : Value(Undefined{"'" + name + "' is undefined"});
      };
    case TokenKind::string: {
      std::string text;
      while (t_.is(TokenKind::string)) text += t_.take().text;
      return constant(text);
    }
    case TokenKind::integer:
      return t_.take(), constant(token.integer);
    case TokenKind::real:
      return t_.take(), constant(token.real);
    default:
      return bracketed();
  }
}

Expression ExpressionParser::bracketed() {
  if (t_.skip_symbol("(")) {
    Expression inside = one_or_tuple(true, true);
    t_.expect_symbol(")");
    return inside;
  }
  if (t_.skip_symbol("[")) return list();
  if (t_.skip_symbol("{")) return dict();
  t_.refuse("expected an expression");
}

Expression ExpressionParser::list() {
  std::vector<Expression> all;
  while (!t_.skip_symbol("]")) {
    if (!all.empty()) t_.expect_symbol(",");
    if (t_.skip_symbol("]")) break;
    all.push_back(whole());
  }
  return [all](Run& run) {
    List list;
    for (const Expression& one : all) list.items.push_back(one(run));
    return Value(list);
  };
}

Expression ExpressionParser::dict() {
  std::vector<std::pair<Expression, Expression>> all;
  while (!t_.skip_symbol("}")) {
    if (!all.empty()) t_.expect_symbol(",");
    if (t_.skip_symbol("}")) break;
    Expression key = whole();
    t_.expect_symbol(":");
    all.emplace_back(std::move(key), whole());
  }
  return [all](Run& run) {
    Dict dict;
    for (const auto& [key, value] : all) {
      const Value name = key(run);
      dict.set(name, value(run));
    }
    return Value(dict);
  };
}

bool ExpressionParser::ends_tuple() const {
  return t_.is(TokenKind::statement_end) || t_.is(TokenKind::expression_end) || t_.is_symbol(")") ||
         t_.is_word("in");
}

Expression ExpressionParser::one_or_tuple(bool with_condition, bool explicit_parentheses) {
  std::vector<Expression> all;
  bool is_tuple = false;
  for (;;) {
    if (!all.empty()) {
      if (!t_.skip_symbol(",")) break;
      is_tuple = true;
    }
    if (ends_tuple()) break;
    all.push_back(with_condition ? whole() : without_condition());
    if (!t_.is_symbol(",")) break;
  }
  if (!is_tuple && all.size() == 1) return all[0];
  if (!is_tuple && !explicit_parentheses) t_.refuse("expected an expression");
  return [all](Run& run) {
    List list{.items = {}, .tuple = true};
    for (const Expression& one : all) list.items.push_back(one(run));
    return Value(list);
  };
}

Expression ExpressionParser::tuple(bool with_condition) { return one_or_tuple(with_condition, false); }

Expression ExpressionParser::postfix(Expression value, Of of) {
  for (;;) {
    if (t_.is_symbol(".") || t_.is_symbol("[")) {
      value = subscript(std::move(value), of);
    } else if (t_.skip_symbol("(")) {
      of = Of::variables;
      value = [function = value, code = arguments()](Run& run) {
        run.step();
        const Value callee = function(run);
        return call(callee, code.evaluate(run));
      };
    } else {
      return value;
    }
  }
}

Expression ExpressionParser::subscript(Expression value, Of of) {
  if (t_.skip_symbol(".")) {
    if (t_.is(TokenKind::integer)) {
      return [value, key = Value(t_.take().integer)](Run& run) { return item(value(run), key); };
    }
    return [value, name = t_.expect_name()](Run& run) { return attribute(value(run), name); };
  }
  t_.expect_symbol("[");
  std::vector<Expression> parts;
  bool is_slice = false, last_was_colon = true;
  while (!t_.is_symbol("]")) {
    if (t_.skip_symbol(":")) {
      is_slice = true;
      if (last_was_colon) parts.push_back(constant(None{}));
      last_was_colon = true;
    } else if (last_was_colon && parts.size() < 3) {
      parts.push_back(whole());
      last_was_colon = false;
    } else {
      t_.refuse("expected ] or :");
    }
  }
  t_.expect_symbol("]");
  if (!is_slice) {
    if (parts.size() != 1) t_.refuse("expected a key between [ and ]");
    return [value, key = parts[0]](Run& run) {
      const Value whole = value(run);
      return item(whole, key(run));
    };
  }
  while (parts.size() < 3) parts.push_back(constant(None{}));
  return [value, parts, of](Run& run) -> Value {
    const Value all = value(run), first = parts[0](run), last = parts[1](run);
    if (of == Of::constant && !has_slices(all) && !all.is_undefined())
      return Undefined{"a slice of what has none"};
    return slice(all, first, last, parts[2](run));
  };
}

ArgumentCode ExpressionParser::arguments() {
  ArgumentCode code;
  bool first = true;
  while (!t_.skip_symbol(")")) {
    if (!std::exchange(first, false)) t_.expect_symbol(",");
    if (t_.skip_symbol(")")) break;
    if (t_.is_symbol("*") || t_.is_symbol("**")) {
      Expression& more = t_.take().text == "*" ? code.more_positional : code.more_named;
      if (more) t_.refuse("expected * and ** once in a call");
      more = whole();
    } else if (t_.is(TokenKind::name) && t_.then().kind == TokenKind::symbol && t_.then().text == "=") {
      std::string name = t_.take().text;
      t_.take();
      code.named.emplace_back(std::move(name), whole());
    } else {
      if (!code.named.empty()) t_.refuse("expected a named argument behind a named one");
      code.positional.push_back(whole());
    }
  }
  return code;
}

std::pair<std::string, ArgumentCode> ExpressionParser::named_call() {
  std::string name = t_.expect_name();
  while (t_.skip_symbol(".")) name += "." + t_.expect_name();
  ArgumentCode code;
  if (t_.skip_symbol("(")) code = arguments();
  return {std::move(name), std::move(code)};
}

Expression ExpressionParser::filters(Expression value) {
  for (;;) {
    if (t_.skip_symbol("|")) {
      auto [name, code] = named_call();
      value = [value, name = name, code = code](Run& run) {
        run.step();
        const Value input = value(run);
        return filter(run, name, input, code.evaluate(run));
      };
    } else if (t_.skip_word("is")) {
      value = test(std::move(value));
    } else if (t_.is_symbol("(")) {
      value = postfix(std::move(value), Of::variables);
    } else {
      return value;
    }
  }
}

Expression ExpressionParser::test(Expression value) {
  const bool denied = t_.skip_word("not");
  std::string name = t_.expect_name();
  while (t_.skip_symbol(".")) name += "." + t_.expect_name();
  ArgumentCode code;
  const bool opens = t_.is_symbol("(") || t_.is_symbol("[") || t_.is_symbol("{");
  const bool literal = t_.is(TokenKind::string) || t_.is(TokenKind::integer) || t_.is(TokenKind::real);
  const bool word = t_.is(TokenKind::name) && !t_.is_word("else") && !t_.is_word("or") &&
                    !t_.is_word("and") && !t_.is_word("if") && !t_.is_word("in") && !t_.is_word("not");
  if (t_.skip_symbol("(")) {
    code = arguments();
  } else if (opens || literal || word) {
    if (t_.is_word("is")) t_.refuse("tests cannot be chained");
    code.positional.push_back(postfix(primary(), Of::variables));
  }
  return [value, name, code, denied](Run& run) {
    const Value of = value(run);
    return Value(jinja::test(run, name, of, code.evaluate(run)) != denied);
  };
}

}  // namespace lockstep::chat::jinja
