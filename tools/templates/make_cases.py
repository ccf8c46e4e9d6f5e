"""Writes what Jinja2 makes of the templates below, as `transformers` sets it up: the reference of the engine in
`crates/checkpoint/src/jinja`.

    python -m venv .venv && .venv/bin/pip install jinja2==3.1.6
    .venv/bin/python tools/templates/make_cases.py crates/checkpoint/tests/data/templates.json
"""

import json
import pathlib
import sys

import jinja2
from jinja2.ext import loopcontrols
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


def environment():
    def raise_exception(message):
        raise jinja2.exceptions.TemplateError(message)

    def tojson(value, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
        return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)

    made = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols])
    made.filters["tojson"] = tojson
    made.globals["raise_exception"] = raise_exception
    return made


def main():
    expressions = [f"{{{{ {text} }}}}" for text in EXPRESSIONS]
    demos = sorted((pathlib.Path(__file__).resolve().parents[2] / "demo").glob("*/tokenizer_config.json"))
    released = [json.loads(path.read_text())["chat_template"] for path in demos]
    whole = [CHATML, HEADERS, THINKING, ALTERNATING, MACROS, *dict.fromkeys(released)]
    cases, made = [], environment()
    for source in whole + STATEMENTS + expressions:
        for flags in [{"add_generation_prompt": True}, {"add_generation_prompt": False, "enable_thinking": False}]:
            if flags["add_generation_prompt"] is False and source not in whole:
                continue
            inputs = {"messages": MESSAGES, "bos_token": "<s>", "eos_token": "</s>", "tools": None, "documents": None}
            try:
                text = made.from_string(source).render(**inputs, **flags)
            except Exception as error:
                sys.exit(f"{source!r}: {error!r}")
            cases.append({"source": source, "flags": flags, "text": text})
    with open(sys.argv[1], "w", encoding="utf-8") as file:
        json.dump({"messages": MESSAGES, "cases": cases}, file, ensure_ascii=False, indent=1)
        file.write("\n")
    print(f"{len(cases)} cases by Jinja2 {jinja2.__version__}")


main()
