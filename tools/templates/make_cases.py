"""Writes what Jinja2 makes of the templates below, as `transformers` sets it up: the reference of
`crates/checkpoint/src/template/tests.rs`.

    python -m venv .venv && .venv/bin/pip install jinja2==3.1.6
    .venv/bin/python tools/templates/make_cases.py crates/checkpoint/tests/data/templates.json
"""

import datetime
import json
import pathlib
import sys

import jinja2
from jinja2.ext import Extension, loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment

MESSAGES = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": " What is 2 + 2?\n"},
    {"role": "assistant", "content": "<think>\nhm\n</think>\n\nFour."},
    {"role": "user", "content": "Sure? “yes” or 'no'"},
]

# Templates in the manner of released ones.
CHATML = """{%- for message in messages %}
{{- '<|im_start|>' + message['role'] + '\\n' + message.content | trim + '<|im_end|>\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n' }}
    {%- if enable_thinking is defined and enable_thinking is false %}
        {{- '<think>\\n\\n</think>\\n\\n' }}
    {%- endif %}
{%- endif %}
"""
HEADERS = """{% set loop_messages = messages %}{% for message in loop_messages %}{% set content = '<|start_header_id|>' + message['role'] + '<|end_header_id|>\n\n'+ message['content'] | trim + '<|eot_id|>' %}{% if loop.index0 == 0 %}{% set content = bos_token + content %}{% endif %}{{ content }}{% endfor %}{% if add_generation_prompt %}{{ '<|start_header_id|>assistant<|end_header_id|>\n\n' }}{% endif %}"""
THINKING = """{%- if tools %}
    {{- '<|im_start|>system\\n' }}
    {%- for tool in tools %}
        {{- tool | tojson }}
    {%- endfor %}
{%- else %}
    {%- if messages[0].role == 'system' %}
        {{- '<|im_start|>system\\n' + messages[0].content + '<|im_end|>\\n' }}
    {%- endif %}
{%- endif %}
{%- set ns = namespace(multi_step_tool=true, last_query_index=messages|length - 1) %}
{%- for message in messages[::-1] %}
    {%- set index = (messages|length - 1) - loop.index0 %}
    {%- if ns.multi_step_tool and message.role == "user" and message.content is string and not(message.content.startswith('<tool_response>') and message.content.endswith('</tool_response>')) %}
        {%- set ns.multi_step_tool = false %}
        {%- set ns.last_query_index = index %}
    {%- endif %}
{%- endfor %}
{%- for message in messages %}
    {%- if message.content is string %}
        {%- set content = message.content %}
    {%- else %}
        {%- set content = '' %}
    {%- endif %}
    {%- if (message.role == "user") or (message.role == "system" and not loop.first) %}
        {{- '<|im_start|>' + message.role + '\\n' + content + '<|im_end|>' + '\\n' }}
    {%- elif message.role == "assistant" %}
        {%- set reasoning_content = '' %}
        {%- if message.reasoning_content is string %}
            {%- set reasoning_content = message.reasoning_content %}
        {%- else %}
            {%- if '</think>' in content %}
                {%- set reasoning_content = content.split('</think>')[0].rstrip('\\n').split('<think>')[-1].lstrip('\\n') %}
                {%- set content = content.split('</think>')[-1].lstrip('\\n') %}
            {%- endif %}
        {%- endif %}
        {%- if loop.index0 > ns.last_query_index %}
            {{- '<|im_start|>' + message.role + '\\n<think>\\n' + reasoning_content.strip('\\n') + '\\n</think>\\n\\n' + content }}
        {%- else %}
            {{- '<|im_start|>' + message.role + '\\n' + content }}
        {%- endif %}
        {{- '<|im_end|>\\n' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n' }}
{%- endif %}"""
ALTERNATING = """{{ bos_token }}{% if messages[0]['role'] == 'system' %}{% set first = messages[0]['content'] %}{% set rest = messages[1:] %}{% else %}{% set rest = messages %}{% endif %}{% for message in rest %}{% if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('Roles must alternate') }}{% endif %}{% if message['role'] == 'user' %}{{ '[INST] ' + (first + '\n\n' if loop.first and first is defined else '') + message['content'] + ' [/INST]' }}{% elif message['role'] == 'assistant' %}{{ ' ' + message['content'] + eos_token }}{% endif %}{% endfor %}"""
MACROS = """{%- macro turn(role, text='(nothing)', end="\\n") -%}
<{{ role }}>{{ text | trim }}</{{ role }}>{{ end }}
{%- endmacro -%}
{%- for message in messages if message.role != 'system' -%}
{{ turn(message.role, text=message.content) }}
{%- else -%}
nobody
{%- endfor -%}
{{ turn('end') }}{% call turn_with() %}inside{% endcall %}"""
MACROS = MACROS.replace("{{ turn('end') }}", "{{ turn('end') }}{%- macro turn_with() -%}[{{ caller() }}]{%- endmacro -%}")

EXPRESSIONS = r"""
1 + 2 * 3 - 4 // 3 % 5
2 ** 3 ** 1
7 / 2
-7 // 2
-7 % 3
1.5 + 1
10 / 5
1e3
'a' ~ 1 ~ none ~ true ~ 1.0 ~ [1, 'x', (2,)] ~ {'k': [1.5, none]}
'ab' * 3
[1] + [2, 3]
'a' in 'cat'
'b' not in ['a']
1 < 2 < 3
3 > 2 == 2
not 1 == 2 and true
none or 'x'
0 and 1
1 if false else 2
(1 if false) is defined
'x' if messages | length > 3 else 'y'
messages[-1].role
messages[10] is defined
messages[0]['nothing'] is undefined
'abcdef'[1:4] + 'abcdef'[::-1] + 'abcdef'[-2:] + 'abcdef'[:-4:-1]
[1, 2, 3, 4][1:3]
(1, 2)[0]
{'a': 1}.a
{'a': 1}['a']
{'a': 1, 'b': 2}.items() |list
{'a': 1}.get('b', 5)
{'b': 1, 'a': 2} | dictsort
'a,b,,c'.split(',')
' a  b c '.split()
' a  b c '.split(none, 1)
'a b c'.rsplit(' ', 1)
'aXbX'.replace('X', '--', 1)
'hello world'.title() ~ 'hELLO'.capitalize() ~ 'x'.upper()
'Äß'.upper() ~ 'ÄB'.lower()
'abc'.find('c') ~ 'abc'.find('z')
'xxabcxx'.strip('x') ~ '!' ~ ' y '.lstrip() ~ '!' ~ ' y '.rstrip()
'a\nb\n'.splitlines()
'ab'.startswith(('x', 'a')) ~ 'ab'.endswith('a')
'12'.isdigit() ~ 'a1'.isalpha()
', '.join(['a', 'b'])
[3, 1, 2] | sort
[3, 1, 2] | sort(reverse=true) | join('-')
['b', 'A', 'c'] | sort
messages | map(attribute='role') | join(', ')
messages | selectattr('role', 'equalto', 'user') | list | length
messages | rejectattr('role', 'in', ['user', 'system']) | map(attribute='content') | first
['a', 'b'] | map('upper') | list
[1, 2, 3, 4] | select('odd') | list
[0, 1, none] | reject | list
[1, 2, 2, 1] | unique | list
[1, 2, 3] | sum
[1, 5, 3] | max ~ [4, 2] | min
range(5) | list
range(5, 0, -2) | list
range(2, 8, 3) | list
nothing | default('d') ~ ('' | default('e', true))
'3' | int + 1
'x' | int(7)
'2.5' | float
3.7 | int
-3 | abs
-2 ** 2
2 ** 3 ** 2
- 3.5 | int
1 - -1
'a' ~ 'b' + 'c' ~ 'd'
2.567 | round(2)
2.5 | round
'<a href="x">' | e
'a\nb\n\nc' | indent(2)
'a\nb' | indent(2, true)
'a b' | wordcount
'abc' | reverse
[1, 2] | reverse | list
'abc' | first ~ 'abc' | last
{'a': [1, 'é"<\n'], 'b': {}, 'c': none, 'd': 1.0, 'e': true} | tojson
{'b': [1, {'x': []}], 'a': 2} | tojson(indent=2)
{'b': 1, 'a': 'é'} | tojson(sort_keys=true, ensure_ascii=true)
[1, 2] | tojson(separators=(',', ':'))
1 is number ~ 'a' is number ~ none is none ~ true is boolean ~ 1 is integer ~ 1.0 is float
[] is iterable ~ {} is mapping ~ 'a' is string ~ [] is sequence
3 is odd ~ 3 is even ~ 9 is divisibleby 3 ~ 9 is divisibleby(2)
1 is eq 1 ~ (1 is ne 1) ~ (2 is gt 1)
'a' is in ['a']
messages is not none and messages is not string
'it''s'
"a\t\u00e9\x41"
['it\'s', "q\"", 'b\\n']
1_000 + 1
true == 1
'a' == 'b'
[1, [2]] == [1, [2]]
{'a': 1} == {'a': 1}
(1, 2) == (1, 2)
[]
{}
()
dict(a=1, b='x')
namespace(a=3).a
'%' ~ 'x'
messages[0].content.split(' ')[0] | upper
""".strip().splitlines()

STATEMENTS = [
    "a\n{% if true %}\nb\n{% endif %}\nc\n",
    "a\n  {% if true %}  \n  b\n  {%- endif -%}  \n\n c\n\n",
    "{# note #}\nx {# y #} z\n   {# only #}\n{#- w -#}  end",
    "   {%+ if true %}x{% endif +%}\n y",
    "{% raw %}{{ no }} {% x %}{% endraw %}!\n  {% raw -%}  k  {%- endraw %}\n.",
    "{% for i in range(3) %}{{ i }}{% if not loop.last %}, {% endif %}{% endfor %}",
    "{% for i in range(10) %}{% if i == 2 %}{% continue %}{% elif i == 5 %}{% break %}{% endif %}{{ i }}{% endfor %}",
    "{% for a, b in {'x': 1, 'y': 2}.items() %}{{ a }}={{ b }};{% endfor %}",
    "{% for m in messages %}{{ loop.index }}{{ loop.revindex0 }}{{ loop.first }}{{ loop.previtem.role if loop.previtem is defined }}{{ loop.nextitem.role if loop.nextitem is defined else '.' }}{{ loop.cycle('a', 'b') }} {% endfor %}",
    "{% for m in [] %}x{% else %}none{% endfor %}",
    "{% set x = 1 %}{% for i in [1] %}{% set x = 2 %}{{ x }}{% endfor %}{{ x }}",
    "{% if true %}{% set y = 3 %}{% endif %}{{ y }}",
    "{% set a, b = 1, [2] %}{{ a }}{{ b }}{% set c = 1, 2 %}{{ c }}",
    "{% set block %}in{{ 1 }}{% endset %}{{ block | upper }}",
    "{% set block | upper %}in{{ 1 }}{% endset %}{{ block }}",
    "{% filter upper | replace('A', 'b') %}abc{% endfilter %}",
    "{% with a = 1, b = 2 %}{{ a + b }}{% endwith %}{{ a is defined }}",
    "{% set ns = namespace() %}{% set ns.x = 5 %}{% for i in range(3) %}{% set ns.x = ns.x + i %}{% endfor %}{{ ns.x }}",
    "{% macro f(a, b=a) %}{{ a }}{{ b }}{% endmacro %}{{ f(1) }}{{ f(1, 2) }}{{ f(b=3, a=4) }}",
    "{% macro f(n) %}{% if n > 0 %}{{ n }}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(3) }}",
    "{{ {'a': {'b': 1}}['a']['b'] }}{{ {} }}",
    "{{ bos_token ~ eos_token }}{{ undefined_thing }}{{ 'x' if undefined_thing }}",
    "{% for i in [1, 2, 3, 4] if i is even %}{{ loop.index }}:{{ i }} {% endfor %}",
    "{% for a in [1, 2] %}{% for b in [3, 4] %}{{ loop.index0 }}{{ a }}{{ b }} {% endfor %}{{ loop.index }}{% endfor %}",
    "line\r\nnext\r\n{{ 1 }}\r\n",
    "{%- if messages -%} yes {%- else -%} no {%- endif -%}\n\n",
    "tail {{ 1 -}} \n x {{- 2 }}",
]


# What Python and Jinja2 say in corners that templates reach now and then: each kind has been wrong once.
CORNERS = {
    "call blocks and macros see the variables around them": [
        "{% macro w() %}<{{ caller() }}>{% endmacro %}{% for m in messages %}{% call w() %}{{ m.role }}{{ loop.index }}{% endcall %}{% endfor %}",
        "{% for m in messages %}{% macro r() %}{{ m.role }};{% endmacro %}{{ r() }}{% endfor %}",
        "{% macro w(x) %}{{ caller() }}{% endmacro %}{% set x = 1 %}{% call w(2) %}{{ x }}{% endcall %}",
        "{% macro f() %}{{ x }}{% endmacro %}{% set x = 1 %}{{ f() }}{% set x = 2 %}{{ f() }}",
        "{% macro outer(a) %}{% macro inner(b) %}{{ a }}{{ b }}{% endmacro %}{{ inner(1) }}{{ inner(2) }}{% endmacro %}{{ outer('x') }}{{ outer('y') }}",
        "{% macro list(items) %}{% for i in items %}[{{ caller(i) }}]{% endfor %}{% endmacro %}{% set s = '!' %}{% call(item) list([1, 2]) %}{{ item }}{{ s }}{% endcall %}",
        "{% with y = 5 %}{% macro g() %}{{ y }}{% endmacro %}{{ g() }}{% endwith %}",
        "{% set ns = namespace(n=0) %}{% macro up() %}{% set ns.n = ns.n + 1 %}{% endmacro %}{% for i in range(3) %}{{ up() }}{% endfor %}{{ ns.n }}",
        "{% macro m(x=y) %}{{ x }}{% endmacro %}{% set y = 3 %}{{ m() }}",
        "{% for i in [] %}a{% else %}{% set z = 1 %}{{ z }}{% endfor %}{{ z is defined }}",
        "{% set x = 0 %}{% for i in [1, 2] %}{{ x }}{% set x = x + 5 %}{{ x }};{% endfor %}{{ x }}",
        "{% macro m() %}{{ caller is defined }}{% endmacro %}{{ m() }}",
    ],
    "every argument has its effect": [
        "{{ 'abcabc'.find('a', 1) }} {{ 'abcabc'.find('c', -2) }} {{ 'abcabc'.find('a', 1, 3) }} {{ 'abcabc'.rfind('a', 0, 3) }} {{ 'aé好'.find('好') }}",
        "{{ 'abcabc'.count('a', 1) }} {{ 'aaa'.count('aa') }} {{ 'abc'.count('') }} {{ 'abcabc'.index('c', 3) }} {{ 'abcabc'.rindex('b', 0, 4) }}",
        "{{ 'abc'.startswith('b', 1) }} {{ 'abc'.endswith('b', 0, 2) }} {{ 'abc'.startswith(('x', 'c'), 2) }} {{ 'abc'.startswith('', 4) }}",
        "{{ 'a\\nb\\n'.splitlines(true) }}{{ 'a\\r\\nb'.splitlines(keepends=true) }}",
        "{{ 'a b c'.split(maxsplit=1) }}{{ 'a b c'.rsplit(none, 1) }}{{ 'a,b,c'.split(',', 1) }}{{ 'a,b,c'.rsplit(sep=',', maxsplit=1) }}{{ ' a  b '.split(none, 5) }}",
        "{{ 'aXbXc'.replace('X', '', 1) }}{{ 'abc'.replace('', '-') }}{{ 'abc'.replace('', '-', 2) }}{{ 'aXb' | replace('X', 'y', count=0) }}",
        "{{ 'xyaxy'.strip('yx') }}{{ 'xxa'.lstrip('x') }}{{ 'axx'.rstrip('x') }}{{ ' a '.strip(none) }}{{ '--a' | trim('-') }}",
        "{{ {'b': 1, 'a': 2} | dictsort(by='value') }}{{ {'b': 1, 'a': 2} | dictsort(reverse=true) }}{{ {'b': 1, 'A': 2, 'a': 3} | dictsort(true) }}{{ {'b': 1, 'A': 2} | dictsort(false, 'value', true) }}",
        "{{ [1, 2, 3] | sum(start=10) }}{{ [[1], [2]] | sum(start=[]) }}{{ messages | map(attribute='role') | map('length') | sum }}{{ [{'n': 1}, {'n': 2}] | sum('n') }}{{ [{'n': 1}] | sum('n', 1.5) }}",
        "{{ ['b', 'A', 'a'] | sort(case_sensitive=true) }}{{ [{'n': 2, 'm': 1}, {'n': 1, 'm': 2}, {'n': 1, 'm': 1}] | sort(attribute='n,m') }}{{ ['a', 'B'] | sort(true) }}",
        "{{ ['a', 'B'] | min }}{{ ['a', 'B'] | min(case_sensitive=true) }}{{ [{'n': 1}, {'n': 3}] | max(attribute='n') }}{{ [] | max is defined }}",
        "{{ ['a', 'A', 'b'] | unique(true) | list }}{{ [{'n': 1, 'm': 2}, {'n': 1}] | unique(attribute='n') | list }}",
        "{{ [1, 2] | join('-', attribute=none) }}{{ messages | join(',', 'role') }}{{ [1, none] | join(d=1) }}",
        "{{ '0x1f' | int(base=16) }} {{ '077' | int(0, 8) }} {{ 'z' | int(default='n') }} {{ '12.7' | int }} {{ ' 1_0 ' | int }} {{ '0b11' | int(base=2) }} {{ true | int }} {{ 'x' | float('y') }} {{ '1e3' | float }} {{ none | int(5) }}",
        "{{ 2.55 | round(1) }} {{ 42 | round }} {{ 42.4 | round(method='ceil') }} {{ 42.77 | round(1, 'floor') }} {{ 1234 | round(-2) }} {{ 2.5 | round }} {{ 3.5 | round }} {{ 0.125 | round(2) }}",
        "{{ 'a\\nb' | indent(width='> ') }}{{ 'a\\n\\nb' | indent(2, blank=true) }}{{ '\\na' | indent(2, first=true) }}{{ 'a\\r\\nb\\n' | indent }}",
        "{{ none | default('x') }}{{ '' | default('x', boolean=true) }}{{ nothing | default(default_value='y') }}{{ false | d('z', true) }}",
        "{{ {'a': 1}.get('b') }}{{ {'a': 1}.get('b', 2) }}{{ [1, 2, 1].index(1, 1) }}{{ (1, 2).count(2) }}{{ [1, 2].copy() }}{{ {'a': 1}.copy() }}",
        "{{ {'a': 1, 'é': [1]} | tojson(true) }}{{ [1, {'a': 2}] | tojson(indent=0) }}{{ [1, 2] | tojson(indent='--') }}{{ [1] | tojson(false, 1) }}{{ {'b': 1, 'a': 2} | tojson(sort_keys=true) }}",
        "{{ range(3, 1) | list }}{{ range(1, 10, 4) | list }}{{ range(2, -3, -2) | list }}",
        "{% set c = 0 %}{% for i in range(4) %}{{ loop.cycle('a', 'b', 'c') }}{{ loop.changed(i // 2) }}{% endfor %}",
        "{{ 'x' | center(5) }}|{{ 'ab'.center(5, '*') }}|{{ 'ab'.ljust(4, '.') }}|{{ 'ab'.rjust(4) }}|{{ '-7'.zfill(4) }}|{{ 'abc'.center(6, '*') }}",
        "{{ [1, 2, 3, 4, 5] | batch(2) | list }}{{ [1, 2, 3] | batch(2, 'x') | list }}{{ [1, 2, 3, 4, 5] | slice(3) | list }}{{ [1, 2, 3, 4] | slice(3, 'x') | list }}{{ [1, 2] | slice(2, 0) | list }}",
        "{% for role, turns in messages | groupby('role') %}{{ role }}:{{ turns | length }};{% endfor %}{% for k, v in [{'c': 'b'}, {'c': 'A'}, {}] | groupby('c', default='a') %}{{ k }}{{ v | length }};{% endfor %}",
        "{{ messages | map(attribute='name', default='-') | join }}{{ [{'a': {'b': 1}}] | map(attribute='a.b') | list }}{{ ['a,b'] | map('replace', ',', old=1) | list if false }}{{ ['a b'] | map('replace', ' ', '_') | list }}",
        "{{ dict([('a', 1)], b=2) }}{{ dict({'a': 1}) }}{{ namespace({'a': 1}, b=2).b }}",
    ],
    "strftime_now writes every specifier": [
        "{{ strftime_now('%A, %d %B %Y') }}", "{{ strftime_now('%j') }}", "{{ strftime_now('%-d %b') }}",
        "{{ strftime_now('%a %w %u %y %C %G %g %V %U %W') }}", "{{ strftime_now('%H:%M:%S %I %p %f') }}",
        "{{ strftime_now('%c|%x|%X|%D|%F|%T|%R|%r|%h|%e|%k|%l|%P|%n|%t|%%') }}", "{{ strftime_now('%-m/%-d/%y %_d %^a %#b %03d %5Y') }}",
        "{{ strftime_now('[%z%Z]') }}", "{{ strftime_now('%Ey %Od') }}",
    ],
    "texts with places": [
        "{{ '<{}_{}>'.format('eos', 1) }}{{ '{1}{0}'.format('a', 'b') }}{{ '{a}{b[0]}{c.x}'.format(a=1, b=[2], c=namespace(x=3)) }}{{ '{{}}{0!r}'.format('q') }}",
        "{{ '{:>5}|{:<5}|{:^5}|{:*^6}|{:05d}|{:+d}|{: d}'.format('a', 'b', 'c', 'd', 42, 7, 7) }}",
        "{{ '{:,}|{:_}|{:x}|{:#x}|{:b}|{:o}|{:X}|{:c}'.format(1234567, 1234567, 255, 255, 5, 8, 255, 65) }}",
        "{{ '{:.2f}|{:8.3f}|{:e}|{:g}|{:%}|{:.1%}|{:,.2f}|{:.3}|{:010.2f}'.format(3.14159, 2.5, 12345.678, 0.0001, 0.25, 0.125, 1234567.891, 1234.5, -3.14159) }}",
        "{{ '{:.2}|{:5}|{:5}|{:>{}}|{:{w}}'.format('abc', 'é', 3, 'x', 4, 'y', w=3) }}{{ '{:5}|{}'.format(true, none) }}{{ '{:g}|{:g}|{:G}|{:.0f}'.format(1e20, 100000, 1e-10, 2.5) }}",
        "{{ '%s-%d' % ('a', 3) }}{{ '%s' % 'x' }}{{ '%s' % [1, 2] }}{{ '%(a)s%(b)03d' % {'a': 1, 'b': 2} }}{{ '100%%' % () }}{{ '%r|%a' % ('é', 'é') }}",
        "{{ '%5s|%-5s|%05d|%+d|% d|%x|%X|%o|%#x|%c|%c' % ('a', 'b', 42, 7, 7, 255, 255, 8, 255, 65, 'z') }}",
        "{{ '%.2f|%8.3f|%e|%g|%G|%.3s|%*d|%.*f|%i|%u' % (3.14159, 2.5, 12345.678, 0.0001, 1e20, 'abcdef', 5, 42, 1, 2.55, 3.9, 4) }}",
        "{{ '%s %s' | format('a', 1) }}{{ '%(x)s' | format(x=2) }}{{ '%d%%' % 5 }}",
        "{{ '{}'.format(1.0) }}{{ '{}'.format([1, 'a']) }}{{ '{:.3f}'.format(2) }}{{ '{:.0f}'.format(1e3) }}",
    ],
    "arguments with * and **, varargs and kwargs": [
        "{% macro m(a, b=2) %}{{ a }}{{ b }}{% endmacro %}{{ m(*[1]) }}{{ m(**{'a': 3, 'b': 4}) }}{{ m(1, **{'b': 5}) }}{{ m(*[6], b=7) }}",
        "{% macro m() %}{{ varargs | join(',') }}{% endmacro %}{{ m(1, 2, 3) }}{{ m() }}",
        "{% macro m(a) %}{{ a }}{{ varargs }}{{ kwargs }}{% endmacro %}{{ m(1, 2, x=3) }}{{ m(x=1) }}",
        "{% macro m() %}{{ kwargs.items() | list }}{% endmacro %}{{ m(b=1, a=2) }}",
        "{{ 'x{}{}'.format(*[1, 2]) }}{{ 'x{a}'.format(**{'a': 1}) }}{{ range(*[1, 3]) | list }}",
        "{% macro m(a, b='d', c=a) %}{{ a }}{{ b }}{{ c }}{% endmacro %}{{ m.name }}{{ m.arguments }}{{ m.catch_varargs }}{{ m.catch_kwargs }}{{ m.caller }}{{ m('z') }}",
        "{{ dict(**{'a': 1}) }}{{ [3, 1] | sort(**{'reverse': true}) }}",
    ],
    "tests by their signs, and tests as Python has them": [
        "{{ messages | selectattr('role', '==', 'user') | list | length }}{{ [1, 2, 3] | select('>', 1) | list }}{{ [1, 2, 3] | reject('<=', 1) | list }}{{ [1, 2] | select('!=', 1) | list }}{{ [1, 2] | select('>=', 2) | list }}{{ [1, 2] | select('<', 2) | list }}",
        "{{ [1, 2, 3] | select('greaterthan', 2) | list }}{{ [1, 2] | select('lessthan', 2) | list }}{{ [1, 2] | select('eq', 1) | list }}",
        "{{ 'A1' is upper }}{{ '1' is upper }}{{ 'a' is lower }}{{ '' is lower }}{{ 1 is lower }}",
        "{{ 1 is sameas 1.0 }}{{ true is sameas true }}{{ 1 is sameas true }}{{ none is sameas none }}",
        "{{ nothing is iterable }}{{ nothing is sequence }}{{ nothing is callable }}{{ 'a' is iterable }}{{ 1 is iterable }}{{ range is callable }}{{ {} is sequence }}{{ () is sequence }}",
        "{{ true is number }}{{ true is integer }}{{ 1.0 is integer }}{{ 2.0 is even }}{{ 3.0 is odd }}{{ 9 is divisibleby(num=3) }}{{ 'upper' is filter }}{{ 'nope' is filter }}{{ 'odd' is test }}{{ '==' is test }}",
        "{{ 'a' is in('abc') }}{{ 1 is in([1]) }}{{ 'role' is in(messages[0]) }}{{ 1 is not in([1]) }}",
    ],
    "what Python says of letters and lines": [
        "{{ '½'.isdigit() ~ '²'.isdecimal() ~ '²'.isdigit() ~ '½'.isnumeric() ~ '一'.isnumeric() ~ '٣'.isdecimal() ~ 'Ⅷ'.isnumeric() ~ 'Ⅷ'.isalpha() ~ '①'.isdigit() }}",
        "{{ 'a\\x0cb\\u2028c'.splitlines() }}{{ 'a\\x1cb\\x85c\\vd\\re'.splitlines() }}{{ '\\n'.splitlines() }}{{ ''.splitlines() }}",
        "{{ 'ß'.upper() }}{{ 'ß'.title() }}{{ 'ß'.capitalize() }}{{ 'ﬁx'.title() }}{{ 'ǆa'.title() }}{{ 'İ'.lower() | length }}{{ 'ΑΣ'.lower() }}{{ 'ΑΣ ΑΣ'.title() }}{{ 'ა'.title() }}{{ 'ᾳ'.title() }}",
        "{{ \"they're bill's 2nd x2y\".title() }}{{ '中a'.title() }}{{ 'éCOLE'.capitalize() }}{{ 'aB'.swapcase() }}",
        "{{ 'é'.isalpha() }}{{ 'a\\u0301'.isalpha() }}{{ 'का'.isalpha() }}{{ 'a1'.isalnum() }}{{ '_'.isalnum() }}{{ 'ªº'.isalpha() }}{{ ''.isalpha() }}{{ '½a'.isalnum() }}",
        "{{ ' \\x1c\\u2003'.isspace() }}{{ '\\u200b'.isspace() }}{{ '\\x1fa\\x1f'.strip() }}{{ 'a\\x1cb'.split() }}{{ '\\u200ba'.strip() | length }}",
        "{{ 'AB1'.isupper() }}{{ 'Ab'.istitle() }}{{ 'AB'.istitle() }}{{ 'a1'.islower() }}{{ '中'.isupper() }}{{ 'ǅ'.isupper() }}{{ 'aé'.isascii() }}{{ 'a\\n'.isprintable() }}{{ 'a b'.isprintable() }}",
        "{{ ['\\u00a0', '\\u200b', '\\x7f', '\\U0001F600', '\\ue000', '\\x00', '\\xad', \"'\", 'é'] }}",
        "{{ 'a-b_c'.partition('-') }}{{ 'abc'.partition('-') }}{{ 'a-b-c'.rpartition('-') }}{{ 'abc'.rpartition('-') }}{{ 'a\\tb'.expandtabs() }}{{ 'ab\\tc'.expandtabs(4) }}",
        "{{ 'abc'.removeprefix('a') }}{{ 'abc'.removesuffix('c') }}{{ 'abc'.removeprefix('x') }}",
        "{{ \"don't stop foo_bar.baz\" | title }}{{ 'a-b (c) [d] {e} <f> g/h' | title }}{{ 'ABC dEF' | title }}{{ 'hello wORLD' | capitalize }}",
        "{{ 'a,b c-d e_f é 2' | wordcount }}{{ \"don't\" | wordcount }}",
    ],
    "white space and line breaks of the source": [
        "a{% raw %}\n b{% endraw %}", "a\n  {% raw %}\n  b\n  {% endraw %}\n c", "a {%- raw -%}\n b {%- endraw -%}\n c", "{% raw %}\n{% endraw %}\nx", "{% raw %}a{% endraw +%}\nb",
        "a\rb\r\nc\n\n", "{% if true %}\r\n x\r\n{% endif %}\r\n", "a\x0b{%- if true %} b{% endif %}", "  {% if true %}x{% endif %}  \n y", "\t{%+ if true +%}\n\tz\n\t{%- endif %}",
        "{{ 'a\r\nb' }}", "{#- a -#}\n b", "x {# c +#}\n y", "{{ '\\101\\x41\\u0041\\q\\'' }}", "{{ 0x1F + 0b11 + 0o17 }}{{ 1_000.5 }}{{ 1.5e2 }}", "{{ [[1, 2], 3].0.1 }}",
    ],
    "loops within themselves": [
        "{% for i in [1] %}{% for j in [1] %}{{ loop.depth }}{{ loop.depth0 }}{% endfor %}{% endfor %}",
        "{% for n in [{'v': 1, 'c': [{'v': 2, 'c': [{'v': 3}]}]}, {'v': 4}] recursive %}{{ n.v }}@{{ loop.depth }}{% if n.c %}({{ loop(n.c) }}){% endif %}{% endfor %}",
        "{% for n in [1] recursive %}{{ loop([]) }}{{ n }}{% else %}none{% endfor %}",
        "{% for i in [1, 2, 3] if i != 2 %}{{ loop.length }}{{ loop.last }}{% endfor %}{% for i in 'ab' %}{{ loop.nope is defined }}{% endfor %}",
    ],
    "results of filters": [
        "{{ ['a', 'A', 'b'] | unique | list }}", "{{ 'b' | list }}{{ {'x': 1} | list }}{{ {'x': 1} | length }}{{ {'x': 1} | first }}",
        "{{ 5 | string ~ 1 }}{{ [1] | string }}{{ 3 | abs }}{{ -2.5 | abs }}", "{{ 'a b/ü&' | urlencode }}{{ {'a b': 'c/d', 'e': 1} | urlencode }}",
        "{{ [3, 1, 2] | max }}{{ 'abc' | max }}{{ 'b,a' | sort }}{{ (1, 2) | reverse | list }}{{ [1, 2] * 2 }}{{ 2 * [0] }}{{ (1,) * 2 }}{{ 'ab' * 0 }}",
        "{{ [1.5, 1e16, 1e-5, 0.0001, 123456789.0] }}{{ 1e22 }}{{ 7 // 2.0 }}{{ 2 ** -1 }}{{ -7 % 3 }}{{ -7.5 % 2 }}",
        "{{ '<a>' | e }}{{ '<a>' | forceescape }}{{ 1 | e }}{{ namespace(x=1) | attr('x') }}{{ {'x': 1} | attr('x') is defined }}",
        "{{ [] | first is defined }}{{ messages | first | items | list | length }}{{ nothing | items | list }}{{ nothing | length }}",
    ],
}

# What Jinja2 refuses: nothing is passed over in silence.
REFUSED = [
    "{{ 'a' | upper(1) }}", "{{ 'a' | trim(nope=1) }}", "{{ [1] | first(1) }}", "{{ [1] | join(',', none, 3) }}", "{{ [1] | sort(nope=1) }}", "{{ {} | dictsort(by='nope') }}",
    "{{ 'a'.upper(1) }}", "{{ 'a'.find() }}", "{{ 'a'.split(',', 1, 2) }}", "{{ 'a'.strip('a', 'b') }}", "{{ {}.get() }}", "{{ {}.keys(1) }}", "{{ [1].index(2) }}", "{{ 'a'.index('b') }}",
    "{{ [1].append(2) }}", "{{ {}.update({}) }}", "{{ '%d' % 'a' }}", "{{ '%s %s' % 'a' }}", "{{ '%s' % ('a', 'b') }}", "{{ '%y' % 1 }}", "{{ '{} {}'.format(1) }}", "{{ '{' .format(1) }}", "{{ '{0} {}'.format(1, 2) }}",
    "{{ '{:d}'.format('a') }}", "{{ '{:.2d}'.format(1) }}", "{% macro m(a) %}{{ a }}{% endmacro %}{{ m(1, 2) }}", "{% macro m(a) %}{{ a }}{% endmacro %}{{ m(b=1) }}", "{% macro m(a) %}{{ a }}{% endmacro %}{{ m(1, a=2) }}",
    "{% macro m() %}x{% endmacro %}{% call m() %}y{% endcall %}", "{% for i in [1] %}{{ loop([1]) }}{% endfor %}", "{{ range(1, 2, 3, 4) }}", "{{ range() }}", "{{ range(1, 5, 0) }}", "{{ strftime_now() }}", "{{ raise_exception() }}",
    "{{ 1 is odd(1) }}", "{{ 1 is eq }}", "{{ 1 is startingwith('a') }}", "{{ 'a' | nope }}", "{{ messages | selectattr('role', 'nope') | list }}", "{{ ['a', 1] | sort }}", "{{ 'a' < 1 }}", "{{ [1] + (2,) }}",
    "{{ ['a'] | sum }}", "{{ nothing.x.y }}", "{{ nothing() }}", "{{ loop.cycle() }}", "{{ namespace(1, 2) }}", "{{ m(*1) }}", "{{ 'a' | default(1, 2, 3) }}", "{{ [1] | map('nope') | list }}", "{{ 3 | join }}",
    "{{ [1] | tojson(nope=1) }}", "{{ 'x'.center() }}", "{{ 'x'.center(5, 'ab') }}", "{{ 'a'.split('') }}", "{{ 1 | replace('a') }}", "{{ 5 | round(1, 'nope') }}",
]


class GenerationTag(Extension):
    """The tag that transformers adds, which changes nothing."""

    tags = {"generation"}

    def parse(self, parser):
        next(parser.stream)
        return parser.parse_statements(["name:endgeneration"], drop_needle=True)


def environment():
    def raise_exception(message):
        raise jinja2.exceptions.TemplateError(message)

    def tojson(value, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
        return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)

    def strftime_now(format):
        return datetime.datetime(1970, 1, 1).strftime(format)

    made = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[GenerationTag, loopcontrols])
    made.filters["tojson"] = tojson
    made.globals["raise_exception"] = raise_exception
    made.globals["strftime_now"] = strftime_now
    return made


def main():
    expressions = [f"{{{{ {text} }}}}" for text in EXPRESSIONS]
    demos = sorted((pathlib.Path(__file__).resolve().parents[2] / "demo").glob("*/tokenizer_config.json"))
    released = [json.loads(path.read_text())["chat_template"] for path in demos]
    whole = [CHATML, HEADERS, THINKING, ALTERNATING, MACROS, *dict.fromkeys(released)]
    corners = [source for sources in CORNERS.values() for source in sources]
    kinds = {source: kind for kind, sources in CORNERS.items() for source in sources}
    cases, made = [], environment()
    for source in whole + STATEMENTS + expressions + corners + REFUSED:
        for flags in [{"add_generation_prompt": True}, {"add_generation_prompt": False, "enable_thinking": False}]:
            if flags["add_generation_prompt"] is False and source not in whole:
                continue
            inputs = {"messages": MESSAGES, "bos_token": "<s>", "eos_token": "</s>", "tools": None, "documents": None}
            try:
                text = made.from_string(source).render(**inputs, **flags)
            except Exception as error:
                if source not in REFUSED:
                    sys.exit(f"{source!r}: {error!r}")
                text = None
            if source in REFUSED and text is not None:
                sys.exit(f"{source!r} is not refused: {text!r}")
            case = {"source": source, "flags": flags, "text": text}
            cases.append({"kind": kinds[source], **case} if source in kinds else case)
    with open(sys.argv[1], "w", encoding="utf-8") as file:
        json.dump({"messages": MESSAGES, "cases": cases}, file, ensure_ascii=False, indent=1)
        file.write("\n")
    print(f"{len(cases)} cases by Jinja2 {jinja2.__version__}")


main()
