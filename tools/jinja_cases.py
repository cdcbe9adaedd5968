#!/usr/bin/env python3
"""Write src/lockstep/chat/jinja/cases.jsonl: templates, and what jinja2 makes of them in Hugging Face's sandbox.

    tools/jinja_cases.py [--seed N] [--count N] > src/lockstep/chat/jinja/cases.jsonl

Needs jinja2 3.1. Half of the cases are conversations in forms that chat templates take, half are random expressions and
tags. Where jinja2 refuses, a case says "error": true.
"""
import argparse
import copy
import json
import random
import re
import sys
import warnings

import jinja2
import jinja2.ext
import jinja2.nodes
from jinja2.sandbox import ImmutableSandboxedEnvironment

NOW = 1700000000  # what strftime_now() would say is not compared: it depends on the time zone


class Generation(jinja2.ext.Extension):
    """{% generation %}: marks what the assistant says, and prints it."""

    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        return jinja2.nodes.CallBlock(self.call_method("_render"), [], [], body).set_lineno(line)

    def _render(self, caller):
        return caller()


def environment():
    def tojson(value, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
        return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)

    def raise_exception(message):
        raise jinja2.exceptions.TemplateError(message)

    env = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[Generation, jinja2.ext.loopcontrols])
    env.filters["tojson"] = tojson
    env.globals["raise_exception"] = raise_exception
    return env


CHAT = {
    "marks": """{% for m in messages %}
{{ '<|' ~ m.role ~ '|>' }}
{{ m['content'] | trim }}<|end|>
{% endfor %}
{% if add_generation_prompt %}<|assistant|>
{% endif %}""",
    "system first": """{%- if messages and messages[0].role == 'system' %}
    {%- set system = messages[0].content %}{% set rest = messages[1:] %}
{%- else %}
    {%- set rest = messages %}
{%- endif -%}
{{ bos_token }}{% for m in rest %}
    {%- if (m.role == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('roles must alternate: ' ~ m.role) }}{% endif -%}
    {%- if m.role == 'user' -%}
[INST] {{ system ~ '\\n\\n' ~ m.content if loop.last and system is defined else m.content }} [/INST]
    {%- else -%}
 {{ m.content }}{{ eos_token }}
    {%- endif %}
{%- endfor %}""",
    "tools": """{%- macro show(t) -%}{{ t.name }}({% for k, v in (t.parameters or {}).items() %}{{ k }}: {{ v.type | default('any') }}{% if not loop.last %}, {% endif %}{% endfor %}){%- endmacro -%}
{%- if tools %}{{ 'Tools:\\n' }}{% for t in tools %}{{- show(t) ~ '\\n' }}{{ t | tojson }}
{{ t | tojson(indent=2) }}
{% endfor %}{% endif %}
{%- set ns = namespace(last=-1, seen=[]) -%}
{%- for m in messages %}{% if m.role == 'user' %}{% set ns.last = loop.index0 %}{% endif %}{% endfor -%}
{%- for m in messages -%}
{%- if m.role == 'assistant' -%}
{%- set text = m.content.split('</think>')[-1].lstrip('\\n') if m.content is string and loop.index0 < ns.last else m.content -%}
{% generation %}A: {{ text }}{% endgeneration %}
{%- for call in m.tool_calls or [] %}<call>{{ call.name }} {{ call.arguments | tojson }}</call>{% endfor %}
{%- elif m.content is mapping or m.content is not string and m.content is iterable -%}
{% for part in m.content %}{{ part.text if part.type == 'text' else '<' ~ part.type ~ '>' }}{% endfor %}
{%- else %}{{ m.role[0] | upper }}: {{ m.content }}{{ '\\n' }}{% endif -%}
{%- endfor -%}""",
}
TALK = [
    [{"role": "user", "content": "Hi"}],
    [{"role": "system", "content": "Be kind.\n"}, {"role": "user", "content": " Hello é 日本 "},
     {"role": "assistant", "content": "Hey!\n"}, {"role": "user", "content": "Bye"}],
    [{"role": "user", "content": "a"}, {"role": "assistant", "content": "<think>\nhm\n</think>\n\nyes"},
     {"role": "user", "content": "b"}, {"role": "assistant", "content": "<think>x</think>no"}],
    [{"role": "user", "content": "w?"},
     {"role": "assistant", "content": "", "tool_calls": [{"name": "f", "arguments": {"city": "Zürich", "n": 3, "x": 1.5, "z": None}}]},
     {"role": "tool", "content": "{\"t\": 21}"}],
    [{"role": "user", "content": [{"type": "text", "text": "look"}, {"type": "image"}]}],
    [{"role": "user", "content": "a"}, {"role": "user", "content": "b"}],
    [{"role": "assistant", "content": "first"}],
    [],
]
TOOLS = [{"name": "f", "description": "say \"now\" <b> é", "parameters": {"city": {"type": "string"}, "n": {}}}]
NAMES = {"a": 1, "b": -3, "f": 2.5, "s": "Hello wörld  ", "q": "plain text", "t": "", "l": [1, 2, 3, "x", None],
         "d": {"k": "v", "n": {"m": [1, 2]}, "items": 5}, "z": None, "y": True,
         "ms": [{"role": "user", "content": " hi "}, {"role": "assistant", "content": "yo\n", "x": 1}, {"role": "tool"}]}
ATOMS = ["a", "b", "f", "s", "q", "t", "l", "d", "ms", "z", "y", "u", "1", "0", "2.5", "1e3", "'q'", '"w z"', "none", "true",
         "[]", "{}", "'\\n\\t\\u00e9'"]
FILTERS = ["length", "trim", "lower", "string", "list", "first", "last", "tojson", "join(',')", "default('D')",
           "default('D', true)", "int", "float", "abs", "reverse|list", "sort", "unique|list", "sum", "min", "max", "items|list",
           "dictsort", "replace('l', 'Z')", "indent(2)", "tojson(indent=2)", "map(attribute='role')|list",
           "map('lower')|list", "selectattr('role', 'equalto', 'user')|list", "rejectattr('x')|list", "select('string')|list",
           "round", "round(1)", "count", "map('string')|join('-')", "capitalize", "select", "map(attribute='x')"]
TESTS = ["defined", "none", "string", "mapping", "number", "iterable", "sequence", "true", "undefined", "boolean", "integer",
         "not none", "not string", "odd", "divisibleby 2", "equalto(1)", "in [1, 2]", "sameas none"]
ENDINGS = [".role", ".content", ".k", ".items", ".n", ".strip()", ".split()", ".keys()|list", ".get('k')", ".startswith('H')",
           ".replace('l', 'L')", ".split('l', 1)", ".lower()", ".find('o')", ".values()|list", ".lstrip(' H')", "[0]", "[-1]",
           "[1:]", "[::-1]", "[:2]", "[-2:]", "['role']", "['k']", ".rsplit('l', 1)", ".splitlines()",
           ".removeprefix('He')", ".endswith(('x', ' '))", ".count('l')", ".join(['a', 'b'])"]


# What is computed item by item, once: generators, views of dictionaries, and loops that look ahead.
LAZY = [
    "{% set g = l|select %}{{ g|first }}{{ g|first }}{{ g|list }}{{ g|list }}{{ g is defined }}",
    "{% set g = ms|selectattr('role', 'equalto', 'user') %}{% if g %}{{ g|list|length }}{% endif %}{% if ms|selectattr('x', 'equalto', 9) %}yes{% endif %}",
    "{% set g = l|map('string') %}{% for x in g %}{{ x }}{% break %}{% endfor %}|{% for x in g %}{{ x }}{% endfor %}|{{ g|list }}",
    "{% set g = [3, 0, 4]|select %}{% for x in g %}{{ x }}{{ loop.last }}{% if loop.first %}{% break %}{% endif %}{% endfor %}|{{ g|list }}",
    "{% set g = [3, 0, 4, 5]|select %}{% for x in g %}{{ loop.index }}/{{ loop.length }} {{ loop.revindex }} {{ loop.nextitem }}{% endfor %}|{{ g|list }}",
    "{% for x in [1, 2, 'a', 3]|map('abs') %}{{ x }}{% if x == 2 %}{% break %}{% endif %}{% endfor %}",
    "{% for x in [1, 2, 'a', 3]|map('abs') %}{{ x }}{{ loop.last }}{% if x == 2 %}{% break %}{% endif %}{% endfor %}",
    "{% set ns = namespace(n=0) %}{% for x in range(6) if x >= ns.n %}{{ x }}{% set ns.n = x + 2 %}{% endfor %}",
    "{% set ns = namespace(n=0) %}{% for x in range(6) if x >= ns.n %}{{ x }}{{ loop.last }}{% set ns.n = x + 2 %}{% endfor %}",
    "{% set ns = namespace(n=0) %}{% for x in range(6) if x >= ns.n %}{{ x }}{{ loop.length }}{% set ns.n = 100 %}{% endfor %}",
    "{% for x in 5|map('string') %}{% endfor %}", "{{ 5|map('nothing') is defined }}{{ 0|map('nothing')|list }}{{ none|select('nothing')|list }}",
    "{{ l|map('nothing')|list }}", "{{ l|map|list }}", "{{ ms|selectattr|list }}", "{{ ms|map(attribute='role', extra=1)|list }}",
    "{{ ms|map(attribute='role', extra=1) is iterable }}{{ ms|map(attribute='x', default=0)|list }}{{ ms|map(attribute='x.y', default='D')|list }}",
    "{{ (l|select) is sequence }}{{ (l|select) is iterable }}{{ (l|select) is mapping }}{{ (l|select) is string }}", "{{ l|select|length }}",
    "{{ l|select|last }}", "{{ (l|select)[0] is defined }}{{ (l|select)[1:] is defined }}", "{{ 3 in (l|select) }}{{ 9 in (l|map('string')) }}",
    "{% set g = l|select %}{{ 2 in g }}{{ g|list }}", "{{ (l|select) == (l|select) }}", "{{ l|select + [1] }}", "{{ (l|map('string'))|tojson }}",
    "{{ l|reverse|list }}{{ (l|reverse)|first }}{{ (l|reverse) is sequence }}{{ l|select|reverse }}{{ 'abc'|reverse }}{{ u|reverse|list }}", "{{ 5|reverse }}",
    "{{ d|reverse|list }}{{ d|items|list }}{{ u|items|list }}{{ d|items is defined }}{{ (5|items) is defined }}", "{{ 5|items|list }}", "{{ l|reverse|length }}",
    "{{ d.keys() }}{{ d.values() }}{{ {'a': 1}.items() }}{{ {}.keys() }}", "{{ {'a': 1}.keys() is sequence }}{{ {'a': 1}.keys() is iterable }}{{ {'a': 1}.keys()[0] is defined }}",
    "{{ {'a': 1, 'b': 2}.keys() == {'b': 1, 'a': 5}.keys() }}{{ {'a': 1}.values() == {'a': 1}.values() }}{{ {'a': 1}.items() == {'a': 1}.items() }}{{ {'a': 1}.keys() == ['a'] }}",
    "{{ {'a': 1}.keys()|first }}{{ {'a': 1, 'b': 2}.keys()|last }}{{ {'a': 1}.values()|length }}{{ 'a' in {'a': 1}.keys() }}{{ {}.keys() or 'none' }}",
    "{{ {'a': 1}.keys() + ['b'] }}", "{{ {'a': 1}.keys()|tojson }}", "{{ {'a': 1}.keys()|list + ['b'] }}", "{{ {'a': 1}.keys()[1:] is defined }}",
    "{{ [1, 2, 3, 4, 5]|batch(2)|list }}{{ [1, 2, 3, 4, 5]|batch(2, 'x')|list }}{{ []|batch(3)|list }}{{ 'abcde'|batch(2)|map('join')|list }}",
    "{{ [1, 2, 3, 4, 5]|slice(2)|list }}{{ [1, 2, 3, 4, 5]|slice(3, 'x')|list }}{{ []|slice(2)|list }}", "{{ [1]|slice(0)|list }}", "{{ [1]|batch|list }}",
    "{{ ms|groupby('role')|list }}{% for role, all in ms|groupby('role') %}{{ role }}{{ all|length }}{% endfor %}{{ ms|groupby('x', default=0)|list }}",
    "{{ ['b', 'A', 'a', 'B']|sort }}{{ ['b', 'A', 'a']|unique|list }}{{ ['b', 'A']|min }}{{ ['a', 'B']|max }}{{ ['a', 'B']|min(true) }}{{ ['b', 'A']|max(case_sensitive=true) }}",
    "{{ [[1]]|unique|list }}", "{{ [(1, 2), (1, 2)]|unique|list }}{{ [1, 1.0, true]|unique|list }}", "{{ [{'a': 2, 'b': 1}, {'a': 1, 'b': 2}, {'a': 1, 'b': 1}]|sort(attribute='a,b') }}",
    "{{ 'one two, three_4 ünf'|wordcount }}{{ ''|wordcount }}{{ 5|wordcount }}",
    "{% for x in [1, 1, 2, 2, 1] %}{% if loop.changed(x) %}{{ x }}{% endif %}{% endfor %}{% for x in 'aab' %}{{ loop.changed(x, 1) }}{% endfor %}",
    "{% for x in l %}{{ loop.cycle('odd', 'even') }}{{ loop.depth }}{{ loop.depth0 }}{{ loop.previtem is defined }}{{ loop.nextitem is defined }}{% endfor %}",
    "{% for x in u %}{{ loop.length }}{% else %}none{% endfor %}{% for x in l|select('string') %}{{ loop.revindex0 }}{% else %}none{% endfor %}",
    "{% for x in l %}{% set outer = loop %}{% for y in [1, 2] %}{{ outer.index }}{{ loop.index }} {% endfor %}{% endfor %}",
    "{% set g = range(4)|map('string') %}{{ g|join(',') }}{{ g|join(',') }}", "{{ l|select('number')|sum }}{{ l|select('number')|map('string')|join }}",
    "{{ l|select('number')|select('odd')|reject('equalto', 1)|list }}{{ ms|rejectattr('content', 'defined')|map(attribute='role')|list }}",
    "{% for m in ms|selectattr('content') if 'h' in m.content %}{{ m.role }}{{ loop.last }}{% endfor %}", "{{ l|first }}{{ ''|first is defined }}{{ {}|first is defined }}",
    "{% set g = l|select %}{% set h = g %}{{ h|first }}{{ g|first }}", "{% macro m(g) %}{{ g|first }}{% endmacro %}{% set g = l|select %}{{ m(g) }}{{ m(g) }}{{ g|list }}",
]

# Macros with any arguments, macros inside of blocks, loops that call themselves.
CALLS = [
    "{% macro v(a, b='d') %}{{ a }}{{ b }}{{ varargs }}{{ kwargs }}{% endmacro %}{{ v(1) }}{{ v(1, 2, 3, *l) }}{{ v(b=1, z=2) }}{{ v(**d) }}{{ v(1, *[2], c=3) }}",
    "{% macro v(a) %}{{ a }}{{ varargs|length }}{% endmacro %}{{ v(1, 2) }}", "{% macro v(a) %}{{ a }}{% endmacro %}{{ v(1, 2) }}",
    "{% macro v(a) %}{{ a }}{{ kwargs.x }}{% endmacro %}{{ v(1, x=2) }}", "{% macro v(a) %}{{ a }}{% endmacro %}{{ v(1, x=2) }}",
    "{% macro v(a) %}{{ a }}{% endmacro %}{{ v(1, a=2) }}", "{% macro v(a) %}{{ a }}{{ kwargs }}{% endmacro %}{{ v(1, a=2) }}",
    "{% macro v(a) %}{{ a }}{{ caller is defined }}{% endmacro %}{{ v(1) }}{% call v(2) %}x{% endcall %}", "{% macro v(a) %}{{ a }}{% endmacro %}{% call v(2) %}x{% endcall %}",
    "{% macro v() %}{{ caller(1, 2) }}{% endmacro %}{% call(a) v() %}{{ a }}{{ varargs }}{% endcall %}",
    "{% filter upper %}{% macro deep(p, n=2) %}[{{ p }}{% if n > 0 %}{{ deep(p, n - 1) }}{% endif %}]{% endmacro %}{{ deep('a') }}{% endfilter %}",
    "{% for m in l %}{% macro down(n) %}{{ n }}{{ m }}{% if n > 0 %}{{ down(n - 1) }}{% endif %}{% endmacro %}{{ down(2) }} {% endfor %}",
    "{% for m in [1, [2, [3]], 4] recursive %}{% if m is iterable %}({{ loop(m) }}){% else %}{{ loop.depth }}:{{ m }}{{ loop.depth0 }} {% endif %}{% endfor %}",
    "{% for k, v in {'a': {'b': {}}, 'c': {}}.items() recursive %}<{{ k }}>{{ loop(v.items()) }}{{ loop.last }}{% else %}none{% endfor %}",
    "{% for m in [[1, 2, 3], [4]] recursive %}{% if m is number %}{% if m == 2 %}{% continue %}{% endif %}{{ m }}{% else %}{{ loop(m) }};{% endif %}{% endfor %}",
    "{% for m in l %}{{ loop([1]) }}{% endfor %}", "{% for m in [1] recursive %}{{ loop() }}{% endfor %}", "{% for m in [1] recursive %}{{ loop(u) }}{{ loop is callable }}{% endfor %}",
    "{{ u[1:] }}", "{{ a[1:] }}", "{{ d[:2] }}", "{{ none[1:] is undefined }}", "{{ ms|sort(attribute='x')|length }}", "{{ [1]|sort(attribute='role') }}",
    "{{ 'one-two (three) [four'|title }}{{ 'x.y z\\'s'|title }}{{ d|title }}{{ 'x.y z\\'s'.title() }}", "{{ 'a' is upper }}{{ '1' is upper }}{{ '1A' is upper }}{{ 'a1' is lower }}{{ 1 is lower }}",
    "{{ 'ab'.center(7, '*') }}{{ 'abc'.center(6, '-') }}{{ 'ab'.ljust(4) }}|{{ 'ab'.rjust(4, '日') }}{{ '-5'.zfill(4) }}{{ 'a.b.c'.rpartition('.') }}{{ 'abca'.index('a') }}{{ 'abca'.rindex('a') }}",
    "{{ 'AbC'.isupper() }}{{ 'ABC 1'.isupper() }}{{ 'ab1'.isalnum() }}{{ ''.islower() }}", "{{ 'a'.index('b') }}", "{{ 'a'.center(3, 'xy') }}",
]


# Python's arguments and edges: from where to where a method looks, what counts as a line, a number or a letter.
EDGES = [
    "{{ 'abcabc'.find('a', 1) }}{{ 'abcabc'.find('c', 1, 2) }}{{ 'abcabc'.rfind('b', 0, -2) }}{{ 'ab'.find('', 2) }}{{ 'ab'.find('', 3) }}{{ 'äöä'.find('ä', 1) }}",
    "{{ 'abcabc'.index('a', 1) }}{{ 'abcabc'.rindex('a', -9, 3) }}{{ [1, 2, 1].index(1, 1) }}{{ 'aXa'.count('a', 1) }}{{ 'aaaa'.count('', 1, 3) }}{{ 'ab'.count('', 5) }}",
    "{{ 'abc'.index('a', 1) }}", "{{ [1, 2].index(1, 1) }}", "{{ 'abc'.find('a', start=1) }}", "{{ 'abc'.strip('a', 'c') }}", "{{ 'a'.upper(1) }}", "{{ {}.get('a', default=1) }}",
    "{{ 'abc'.startswith('b', 1) }}{{ 'abc'.startswith(('x', 'c'), 2) }}{{ 'abc'.endswith('b', 0, 2) }}{{ 'abc'.startswith('', 4) }}{{ 'abc'.endswith('', 3) }}",
    "{{ 'abc'.startswith(['a']) }}", "{{ 'a'.partition('') }}", "{{ 'abc'.zfill() }}", "{{ 'a'.center(3, [1]) }}", "{{ 'abc'.ljust(-9223372036854775807) }}{{ '-a'.zfill(-9) }}",
    "{{ ' a b  c '.rsplit() }}{{ ' a b  c '.rsplit(none, 1) }}{{ ' a b  c '.rsplit(maxsplit=0) }}{{ ''.rsplit() }}{{ 'a b'.split(sep=' ', maxsplit=1) }}{{ ' 1  2  3  '.split(none, 1) }}{{ ' a '.split(none, 0) }}",
    "{{ 'a\\x0bb\\x0cc\\x1cd\\u2028e\\x85f\\r\\ng\\rh\\n'.splitlines() }}{{ 'a\\r\\nb\\u2029'.splitlines(true) }}{{ 'a\\r\\n\\r\\nb\\x0bc'|indent }}{{ 'a\\n\\nb\\n'|indent(2, true, true) }}",
    "{{ '0x10'|int }}{{ '0x1F'|int(base=16) }}{{ '0b11'|int(0, 2) }}{{ '1_000'|int }}{{ '1__0'|int(7) }}{{ 'inf'|int(5) }}{{ '1e3'|int }}{{ ' -12 '|int }}{{ '010'|int }}{{ 'zz'|int(base=36) }}",
    "{{ '010'|int(4, 0) }}{{ '0x_f'|int(0, 0) }}{{ '+7'|int }}{{ '- 7'|int(3) }}{{ '0x10'|float }}{{ '1_0.5'|float }}{{ 'nan'|float }}{{ '-Infinity'|float }}{{ '1e400'|float }}{{ '1e-400'|float }}{{ '.5'|float }}",
    "{{ 1234|round(-2) }}{{ 1250.5|round(-2) }}{{ 150|round(-2) }}{{ 250|round(-2) }}{{ 2.675|round(2) }}{{ 5|round(1, 'ceil') }}{{ 1e300|round(2) }}{{ -2.5|round }}", "{{ 1.5|round(1, 'near') }}",
    "{{ 'a1'|replace(1, 2) }}{{ 'aaa'|replace('a', 'b', none) }}{{ 'aaa'|replace('a', 'b', 1) }}{{ 11|replace('1', 'x') }}",
    "{{ 'ΑΣ ΣΑΣ. Σ ΑΣ1'|lower }}{{ 'ΟΔΟΣ'.lower() }}{{ 'aΣ'|capitalize }}{{ '日本 x'|upper }}{{ '日本X'|capitalize }}{{ '3aB'|capitalize }}{{ 'a\\xa0b c{d<e'|title }}",
    "{{ '²'.isalnum() }}{{ '½a'.isalnum() }}{{ 'a b'.isalnum() }}", "{{ ms|map(attribute='99999999999999999999')|list }}", "{{ l|map(attribute='-1')|list }}",
]


class Writer:
    def __init__(self, seed):
        self.random = random.Random(seed)
        self.pick = lambda *some: self.random.choice(some)

    def expression(self, depth=0):
        if depth > 3 or self.random.random() < 0.25:
            return self.random.choice(ATOMS)
        one, two = self.expression(depth + 1), self.expression(depth + 1)
        return self.pick(
            f"({one} {self.pick('+', '-', '*', '/', '//', '~')} {two})",
            f"({one} {self.pick('==', '!=', '<', '>=', 'in', 'not in')} {two})",
            f"({one} {self.pick('and', 'or')} {two})", f"(not {one})", f"({one} if {two} else {self.expression(depth + 1)})",
            f"({one}){self.random.choice(ENDINGS)}", f"({one}){self.random.choice(ENDINGS)}",
            f"(({one}) is {self.random.choice(TESTS)})", f"(({one})|{self.random.choice(FILTERS)})",
            f"(({one})|{self.random.choice(FILTERS)})", f"[{one}, {two}]", f"{{'k': {one}, 1: {two}}}", f"({one}, {two})",
            f"range({self.pick('3', '1, 4', '5, 0, -2', 'a')})|list", f"namespace(x={one}).x")

    def text(self):
        return self.pick("", "x", " ", "\n", "  \n  ", "a\n", "\t", "b c\n\n", "}", "%")

    def tag(self, words):
        return "{%" + self.pick("", "", "-", "+") + f" {words} " + self.pick("", "", "-") + "%}"

    def body(self, depth):
        return "".join(self.text() + self.statement(depth + 1) for _ in range(self.random.randrange(1, 3))) + self.text()

    def statement(self, depth=0):
        kind = self.random.randrange(11)
        if depth > 2 or kind < 4:
            return "{{" + self.pick("", "-") + f" {self.expression()} " + self.pick("", "-") + "}}"
        if kind == 4:
            return (self.tag("if " + self.expression()) + self.body(depth) + self.tag("elif " + self.expression())
                    + self.body(depth) + self.tag("else") + self.body(depth) + self.tag("endif"))
        if kind in (5, 6):
            over = self.pick("m in ms", "m in l", "k, v in d.items()", "i in range(3)", "m in ms if m.content", "c in q")
            shown = self.pick("{{ loop.index }}", "{{ loop.last }}", "{{ loop.revindex }}{{ loop.length }}", "{{ loop.previtem }}")
            cut = self.tag(self.pick("break", "continue")) if self.random.random() < 0.1 else ""
            return self.tag("for " + over) + shown + self.body(depth) + cut + self.tag("else") + "none" + self.tag("endfor")
        if kind == 7:
            return self.tag("set n = " + self.expression()) + "{{ n }}" + self.body(depth)
        if kind == 8:
            return self.tag("set n") + self.body(depth) + self.tag("endset") + "{{ n | trim }}"
        if kind == 9:
            return (self.tag("macro shown(p, r=" + self.expression() + ")") + "{{ p }}{{ r }}" + self.text() + self.tag("endmacro")
                    + "{{ shown(" + self.expression() + ") }}{{ shown(1, r=" + self.expression() + ") }}")
        return "{#" + self.pick("", "-") + " note " + self.pick("", "-") + "#}" + self.text()

    def template(self):
        return "".join(self.text() + self.statement() for _ in range(self.random.randrange(1, 4))) + self.text()


def outcome(env, template, names):
    try:
        return {"text": env.from_string(template).render(**copy.deepcopy(names))}  # some filters change what they are given
    except Exception:  # whatever it is: the template is refused
        return {"error": True}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--count", type=int, default=600)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    env = environment()
    for name, template in CHAT.items():
        for messages in TALK:
            for more in ({}, {"tools": TOOLS, "add_generation_prompt": True}):
                names = {"messages": messages, "bos_token": "<s>", "eos_token": "</s>", **more}
                print(json.dumps({"name": name, "template": template, "names": names, **outcome(env, template, names)}))
    print(json.dumps({"shared": NAMES}))
    for template in LAZY + CALLS + EDGES:
        print(json.dumps({"template": template, **outcome(env, template, NAMES)}))
    writer, told, refused = Writer(options.seed), 0, 0
    while told < options.count:
        template = writer.template()
        if re.search(r"(none|true|[0-9.e]+|not .*)\)+\[", template):
            continue  # jinja2 folds constants, and folds these to nothing
        if re.search(r"(true|[0-9.e]+)\)+\|(map|select|reject)", template):
            continue  # what cannot be walked over is not noticed before somebody does
        result = outcome(env, template, NAMES)
        if " object " in result.get("text", ""):
            continue  # "<generator object at 0x7f...>"
        refused += "error" in result
        if "error" in result and refused % 10 != 0:
            continue
        told += 1
        print(json.dumps({"template": template, **result}))


if __name__ == "__main__":
    sys.exit(main())
