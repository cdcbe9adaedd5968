#include "lockstep/chat/jinja/template.h"

#include <gtest/gtest.h>

#include <fstream>

namespace lockstep::chat::jinja {
namespace {

using Names = std::vector<std::pair<std::string, Value>>;

Names names_of(const nlohmann::ordered_json& json) {
  Names names;
  for (const auto& [name, value] : json.items()) names.emplace_back(name, Value::from_json(value));
  return names;
}

std::string rendered(const std::string& source, const Names& names = {}) {
  return Template(source).render(names, 1700000000).text;
}

std::string failure_of(const std::string& source, const Names& names = {}) {
  try {
    return "rendered: " + rendered(source, names);
  } catch (const Failure& failure) {
    return failure.what();
  }
}

// What jinja2 makes of conversations and of random templates (tools/jinja_cases.py).
TEST(Template, RendersWhatJinja2Does) {
  std::ifstream file(std::string(LOCKSTEP_SOURCE) + "/src/lockstep/chat/jinja/cases.jsonl");
  nlohmann::ordered_json shared;
  int count = 0;
  for (std::string line; std::getline(file, line);) {
    const auto row = nlohmann::ordered_json::parse(line);
    if (row.contains("shared")) {
      shared = row["shared"];
      continue;
    }
    const auto source = row["template"].get<std::string>();
    const Names names = names_of(row.value("names", shared));
    ++count;
    if (row.contains("error")) {
      EXPECT_THROW(rendered(source, names), Failure) << source;
    } else {
      try {
        EXPECT_EQ(rendered(source, names), row["text"].get<std::string>()) << source;
      } catch (const Failure& failure) {
        ADD_FAILURE() << source << "\n" << failure.what();
      }
    }
  }
  EXPECT_GT(count, 500);
}

// Found by tools/jinja_cases.py with other seeds than that of the table.
TEST(Template, SlicesAndRepetitionsOfWhatHasNone) {
  EXPECT_EQ(rendered("{{ (true)[-2:] }}{{ ({})[::-1] is defined }}{{ (2.5)[1:] is undefined }}", {}),
            "FalseTrue");
  EXPECT_EQ(rendered("{{ (1, 2) * 0 }}{{ (1, 2) * 2 }}{{ [1] * 2 }}", {}), "()(1, 2, 1, 2)[1, 1]");
}

// Text and errors by jinja2 3.1, with trim_blocks and lstrip_blocks.
TEST(Template, FormatsAsPythonDoes) {
  const std::vector<std::pair<std::string, std::string>> rows = {
      {"{{ '%s=%d' | format('a', 2) }}", "a=2"},
      {"{{ '%s' | format([1, 'b']) }}{{ '%r' | format('b') }}", "[1, 'b']'b'"},
      {"{{ '%(x)s-%(y)05.1f' | format(x=none, y=2) }}", "None-002.0"},
      {"{{ '%s and %s' % (1, true) }}{{ '%s' % 7.0 }}", "1 and True7.0"},
      {"{{ '%5s|%-5s|%.2s' % ('é', 'ab', '日本語') }}", "    é|ab   |日本"},
      {"{{ '%*d|%+d|%x|%X|%o' % (4, 3, 5, 255, 255, 8) }}", "   3|+5|ff|FF|10"},
      {"{{ '%e %g %c%c %a %%' % (1.5, 1e-9, 65, 'é', 'é') }}", "1.500000e+00 1e-09 Aé '\\xe9' %"},
      {"{{ '%d' % 3.9 }}{{ 'plain' % [] }}{{ '%s' % nobody }}", "3plain"},
  };
  for (const auto& [source, text] : rows) EXPECT_EQ(rendered(source), text) << source;
  EXPECT_EQ(failure_of("{{ '%s' % () }}"), "not enough arguments for format string (line 1)");
  EXPECT_EQ(failure_of("{{ 'a' % 1 }}"), "not all arguments converted during string formatting (line 1)");
  EXPECT_EQ(failure_of("{{ '%(a)s' % 'b' }}"), "format requires a mapping (line 1)");
  EXPECT_EQ(failure_of("{{ '%d' % 'b' }}"), "%d format: a real number is required, not str (line 1)");
  EXPECT_NE(failure_of("{{ '%999999999d' % 1 }}").find("too large"), std::string::npos);
}

// {% raw %} keeps the line end behind it, {% endraw %} does not.
TEST(Template, RawKeepsItsFirstLineEnd) {
  EXPECT_EQ(rendered("a{% raw %}\n{{ x }}{% endraw %}\nb"), "a\n{{ x }}b");
  EXPECT_EQ(rendered("a{% raw -%}\n {{ x }}\n {%- endraw %}b"), "a{{ x }}b");
  EXPECT_NE(failure_of("{% raw +%}x{% endraw %}").find("raw"), std::string::npos);
}

TEST(Template, SaysWhatItsAuthorWants) {
  EXPECT_EQ(failure_of("a\n{{ raise_exception('roles must alternate') }}"), "roles must alternate (line 2)");
  EXPECT_EQ(failure_of("{{ messages[0].role.x }}", {{"messages", List{}}}),
            "'list object' has no attribute '0' (line 1)");
  EXPECT_EQ(failure_of("{{ nobody.name }}"), "'nobody' is undefined (line 1)");
  EXPECT_NE(failure_of("{% include 'other' %}").find("{% include %}"), std::string::npos);
  EXPECT_NE(failure_of("{% if a %}x").find("expected {% endif %}"), std::string::npos);
  EXPECT_NE(failure_of("{{ 'x }}").find("not closed"), std::string::npos);
}

// Python prints all digits of such a number; a rounded one would be another.
TEST(Template, NumbersBeyond64BitsAreRefused) {
  EXPECT_EQ(Value::from_json(INT64_MAX).get<int64_t>() != nullptr, true);
  EXPECT_THROW(Value::from_json(uint64_t{1} << 63), Failure);
  EXPECT_NE(failure_of("{{ '99999999999999999999'|int }}").find("64 bits"), std::string::npos);
  EXPECT_NE(failure_of("{{ '1e30'|int }}").find("64 bits"), std::string::npos);
}

TEST(Template, MarksWhatTheAssistantSays) {
  const Template marked("{% for m in ms %}[{% generation %}{{ m }}{% endgeneration %}]{% endfor %}");
  EXPECT_TRUE(marked.marks_generation());
  const Output out = marked.render({{"ms", List{{"one", "two"}}}});
  ASSERT_EQ(out.generated.size(), 2u);
  EXPECT_EQ(out.text.substr(out.generated[1].first, out.generated[1].second - out.generated[1].first), "two");
}

// Whatever a stranger's template does, rendering ends, and soon.
TEST(Template, HostileOnesEnd) {
  std::string nested = "{{ x }}";
  for (int i = 0; i < 4; ++i)
    nested = "{% for i" + std::to_string(i) + " in range(99999) %}" + nested + "{% endfor %}";
  EXPECT_NE(failure_of(nested).find("too many steps"), std::string::npos);
  EXPECT_NE(failure_of("{{ range(10 ** 9) }}").find("range too big"), std::string::npos);
  EXPECT_NE(failure_of("{{ 'x' * 10 ** 9 }}").find("too long"), std::string::npos);
  // Texts and lists that double until the memory is full, and one that is copied once for each item.
  for (const char* grown : {"ns.x ~ ns.x", "ns.x.replace('y', ns.x)"}) {
    const std::string source =
        std::string("{% set ns = namespace(x='y' * 100000) %}{% for i in range(60) %}{% set ns.x = ") +
        grown + " %}{% endfor %}";
    EXPECT_NE(failure_of(source).find("above 128 MiB"), std::string::npos) << grown;
  }
  EXPECT_NE(
      failure_of(
          "{% set ns = namespace(x=[1]) %}{% for i in range(60) %}{% set ns.x = ns.x + ns.x %}{% endfor %}")
          .find("too long"),
      std::string::npos);
  EXPECT_NE(failure_of("{{ ['y' * 1000000] * 1000000 }}").find("too long"), std::string::npos);
  EXPECT_NE(failure_of("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}").find("without end"),
            std::string::npos);
  EXPECT_NE(failure_of("{{ " + std::string(100'000, '(') + std::string(100'000, ')') + " }}").find("deeply"),
            std::string::npos);
  EXPECT_NE(failure_of("{{ " + std::string(100'000, '-') + "1 }}").find("deeply"), std::string::npos);
  EXPECT_NE(failure_of("{{ 10 ** 30 }}").find("64 bits"), std::string::npos);
  EXPECT_NE(failure_of("{{ [1].append(2) }}").find("would change"), std::string::npos);
  // A macro that outlives the loop that made it.
  EXPECT_EQ(rendered("{% set ns = namespace(f=none) %}{% for x in [7] %}{% macro m() %}{{ x }}{% endmacro %}"
                     "{% set ns.f = m %}{% endfor %}{{ ns.f() }}"),
            "7");
}

}  // namespace
}  // namespace lockstep::chat::jinja
