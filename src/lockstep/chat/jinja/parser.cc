#include "lockstep/chat/jinja/parser.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <set>
#include <utility>

#include "lockstep/chat/jinja/expression_parser.h"
#include "lockstep/chat/jinja/operations.h"
#include "lockstep/chat/jinja/statements.h"

namespace lockstep::chat::jinja {

namespace {

constexpr size_t kMostOutput = size_t{256} << 20;
constexpr int kDeepest = 200;

class Parser {
 public:
  explicit Parser(std::string_view source) : t_(tokens_of(source)), e_(t_) {}

  Program all() {
    Program program;
    program.body = block({});
    if (!t_.is(TokenKind::end)) t_.refuse("expected nothing more");
    program.marks_generation = marks_generation_;
    return program;
  }

 private:
  // Up to a tag that begins with one of these words, which stays to be read.
  Statement block(const std::vector<std::string_view>& ends) {
    if (++depth_ > kDeepest) t_.refuse("tags are nested too deeply");
    std::vector<Statement> all;
    for (;;) {
      if (t_.is(TokenKind::data)) {
        all.push_back([text = t_.take().text](Run&, Output& out) {
          out.text += text;
          return Flow::next;
        });
      } else if (t_.is(TokenKind::expression)) {
        all.push_back(print());
      } else if (t_.is(TokenKind::statement)) {
        const std::string word = t_.then().kind == TokenKind::name ? t_.then().text : "";
        if (std::find(ends.begin(), ends.end(), word) != ends.end()) break;
        t_.take();
        all.push_back(statement());
      } else {
        if (!ends.empty()) t_.refuse(fmt::format("expected {{% {} %}}", ends.back()));
        break;
      }
    }
    --depth_;
    return [all](Run& run, Output& out) {
      for (const Statement& one : all) {
        const Flow flow = one(run, out);
        if (flow != Flow::next) return flow;
        if (out.text.size() > kMostOutput) fail("the template writes too much: it would go on without end");
      }
      return Flow::next;
    };
  }

  Statement print() {
    const int line = t_.take().line;
    Expression value = e_.tuple(true);
    if (!t_.is(TokenKind::expression_end)) t_.refuse("expected }}");
    t_.take();
    return [value, line](Run& run, Output& out) {
      run.line = line;
      run.step();
      out.text += to_str(value(run));
      return Flow::next;
    };
  }

  void end_tag() {
    if (!t_.is(TokenKind::statement_end)) t_.refuse("expected %}");
    t_.take();
  }
  // {% word %}, which ends a block.
  void closing(std::string_view word) {
    t_.take();
    t_.expect_word(word);
    if (word == "endmacro" && t_.is(TokenKind::name)) t_.take();
    end_tag();
  }

  Statement statement() {
    const int line = t_.now().line;
    const std::string word = t_.expect_name();
    Statement body = word == "if"           ? condition()
                     : word == "for"        ? loop()
                     : word == "set"        ? assignment()
                     : word == "macro"      ? macro()
                     : word == "call"       ? call_block()
                     : word == "filter"     ? filter_block()
                     : word == "with"       ? with()
                     : word == "generation" ? generation()
                     : word == "break"      ? flow(Flow::stop)
                     : word == "continue"   ? flow(Flow::again)
                                            : refuse_tag(word);
    return [body, line](Run& run, Output& out) {
      run.line = line;
      run.step();
      return body(run, out);
    };
  }
  [[noreturn]] Statement refuse_tag(const std::string& word) {
    fail(fmt::format(
        "the tag {{% {} %}} is not one of if, for, set, macro, call, filter, with, generation, break, "
        "continue, raw (line {})",
        word, t_.now().line));
  }

  Statement flow(Flow kind) {
    if (loops_ == 0) t_.refuse("break and continue stand in a loop");
    end_tag();
    return [kind](Run&, Output&) { return kind; };
  }

  Statement condition() {
    std::vector<std::pair<Expression, Statement>> cases;
    Statement otherwise;
    for (;;) {
      Expression when = e_.tuple(true);
      end_tag();
      cases.emplace_back(std::move(when), block({"elif", "else", "endif"}));
      t_.take();
      if (t_.skip_word("elif")) continue;
      if (t_.skip_word("else")) {
        end_tag();
        otherwise = block({"endif"});
        t_.take();
      }
      t_.expect_word("endif");
      end_tag();
      break;
    }
    return [cases, otherwise](Run& run, Output& out) {
      for (const auto& [when, body] : cases) {
        if (is_true(when(run))) return body(run, out);
      }
      return otherwise ? otherwise(run, out) : Flow::next;
    };
  }

  Target one_target() {
    if (t_.skip_symbol("(")) {
      Target inner = targets(")");
      t_.expect_symbol(")");
      return inner;
    }
    std::string name = t_.expect_name();
    if (!t_.skip_symbol(".")) return name_target(std::move(name));
    return namespace_target(std::move(name), t_.expect_name());
  }
  Target targets(std::string_view) {
    std::vector<Target> all = {one_target()};
    bool several = false;
    while (t_.skip_symbol(",")) {
      several = true;
      if (!t_.is(TokenKind::name) && !t_.is_symbol("(")) break;
      all.push_back(one_target());
    }
    return several ? tuple_target(std::move(all)) : all[0];
  }

  Statement loop() {
    Loop loop;
    loop.target = targets("in");
    t_.expect_word("in");
    loop.over = e_.tuple(false);
    if (t_.skip_word("if")) loop.condition = e_.whole();
    loop.recursive = t_.skip_word("recursive");
    end_tag();
    ++loops_;
    loop.body = block({"else", "endfor"});
    --loops_;
    t_.take();
    if (t_.skip_word("else")) {
      end_tag();
      loop.otherwise = block({"endfor"});
      t_.take();
    }
    t_.expect_word("endfor");
    end_tag();
    return [loop](Run& run, Output& out) { return loop.render(run, out); };
  }

  Statement assignment() {
    Target target = targets("=");
    if (t_.skip_symbol("=")) {
      Expression value = e_.tuple(true);
      end_tag();
      return [target, value](Run& run, Output&) {
        target(run, value(run));
        return Flow::next;
      };
    }
    std::vector<std::pair<std::string, ArgumentCode>> filters;
    while (t_.skip_symbol("|")) filters.push_back(e_.named_call());
    end_tag();
    Statement body = block({"endset"});
    closing("endset");
    return [target, filters, body](Run& run, Output&) {
      target(run, filtered(run, body, filters));
      return Flow::next;
    };
  }

  static Value filtered(Run& run, const Statement& body,
                        const std::vector<std::pair<std::string, ArgumentCode>>& filters) {
    Scope inner{run.scope, {}};
    const ScopeGuard guard(run, inner);
    Value text = captured(body, run);
    for (const auto& [name, code] : filters) text = filter(run, name, text, code.evaluate(run));
    return text;
  }

  Statement filter_block() {
    std::vector<std::pair<std::string, ArgumentCode>> filters = {e_.named_call()};
    while (t_.skip_symbol("|")) filters.push_back(e_.named_call());
    end_tag();
    Statement body = block({"endfilter"});
    closing("endfilter");
    return [filters, body](Run& run, Output& out) {
      out.text += to_str(filtered(run, body, filters));
      return Flow::next;
    };
  }

  Statement with() {
    std::vector<std::pair<Target, Expression>> all;
    while (!t_.is(TokenKind::statement_end)) {
      if (!all.empty()) t_.expect_symbol(",");
      Target target = one_target();
      t_.expect_symbol("=");
      all.emplace_back(std::move(target), e_.whole());
    }
    end_tag();
    Statement body = block({"endwith"});
    closing("endwith");
    return [all, body](Run& run, Output& out) {
      std::vector<Value> values;
      for (const auto& [target, value] : all) values.push_back(value(run));
      Scope inner{run.scope, {}};
      const ScopeGuard guard(run, inner);
      for (size_t i = 0; i < all.size(); ++i) all[i].first(run, values[i]);
      return body(run, out);
    };
  }

  void parameters(Macro& macro) {
    t_.expect_symbol("(");
    while (!t_.skip_symbol(")")) {
      if (!macro.parameters.empty()) t_.expect_symbol(",");
      macro.parameters.push_back(t_.expect_name());
      macro.defaults.emplace_back();
      if (t_.skip_symbol("=")) macro.defaults.back() = e_.whole();
    }
  }
  void macro_body(Macro& macro, std::string_view end) {
    end_tag();
    const int loops = std::exchange(loops_, 0);
    std::set<std::string> outside = e_.names_taken();
    macro.body = block({end});
    const std::set<std::string> asked = e_.names_taken();
    macro.asks_for_varargs = asked.contains("varargs");
    macro.asks_for_kwargs = asked.contains("kwargs");
    macro.asks_for_caller = asked.contains("caller");
    outside.insert(asked.begin(), asked.end());
    e_.names_taken(std::move(outside));
    loops_ = loops;
    closing(end);
  }

  Statement macro() {
    auto macro = std::make_shared<Macro>();
    macro->name = t_.expect_name();
    parameters(*macro);
    macro_body(*macro, "endmacro");
    return [macro](Run& run, Output&) {
      run.scope->set(macro->name, function_of(macro, run));
      return Flow::next;
    };
  }
  static Function function_of(const std::shared_ptr<const Macro>& macro, Run& run) {
    return function_in(macro, run, scope_to_keep(run));
  }
  // One that keeps its names knows itself by its own: it is not among those that were copied.
  static Function function_in(const std::shared_ptr<const Macro>& macro, Run& run,
                              std::shared_ptr<Scope> kept) {
    return {macro->name, [macro, &run, kept](const Arguments& arguments) {
              if (kept == nullptr) return macro->call(run, run.root(), arguments);
              Scope itself{kept.get(), {}};
              itself.set(macro->name, function_in(macro, run, kept));
              return macro->call(run, &itself, arguments);
            }};
  }
  // Null: the template's own names, as they are when the macro is called. A macro inside a loop may outlive
  // the turn that made it, and keeps copies of its names.
  static std::shared_ptr<Scope> scope_to_keep(Run& run) {
    if (run.scope == run.root()) return nullptr;
    auto kept = std::make_shared<Scope>();
    kept->outside = run.root();
    std::vector<Scope*> inner;
    for (Scope* scope = run.scope; scope != run.root(); scope = scope->outside) inner.push_back(scope);
    for (auto scope = inner.rbegin(); scope != inner.rend(); ++scope) {
      for (const auto& [name, value] : (*scope)->names) kept->set(name, value);
    }
    return kept;
  }

  Statement call_block() {
    auto caller = std::make_shared<Macro>();
    caller->name = "caller";
    if (t_.is_symbol("(")) parameters(*caller);
    Expression function;
    const std::string name = t_.expect_name();
    function = [name](Run& run) {
      const Value* found = run.scope->find(name);
      return found != nullptr ? *found : Value(Undefined{"'" + name + "' is undefined"});
    };
    t_.expect_symbol("(");
    ArgumentCode code = e_.arguments();
    macro_body(*caller, "endcall");
    return [caller, function, code](Run& run, Output& out) {
      Arguments arguments = code.evaluate(run);
      arguments.named.emplace_back("caller", function_of(caller, run));
      out.text += to_str(call(function(run), arguments));
      return Flow::next;
    };
  }

  Statement generation() {
    marks_generation_ = true;
    end_tag();
    Statement body = block({"endgeneration"});
    closing("endgeneration");
    return [body](Run& run, Output& out) {
      const size_t begin = out.text.size();
      const Flow flow = body(run, out);
      out.generated.emplace_back(begin, out.text.size());
      return flow;
    };
  }

  TokenReader t_;
  ExpressionParser e_;
  int depth_ = 0, loops_ = 0;
  bool marks_generation_ = false;
};

}  // namespace

Program parse(std::string_view source) { return Parser(source).all(); }

}  // namespace lockstep::chat::jinja
