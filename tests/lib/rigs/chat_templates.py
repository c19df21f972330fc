"""Chat templates that write tools, calls and their results as families of models do, and nothing else."""

_SAID = "{{ message.content or '' }}"
_TOOLS = "{% for tool in tools or [] %}{{ tool | tojson }}\n{% endfor %}"


def _template(call, before="", after="", start=""):
    calls = "{% for call in message.tool_calls %}" + call + "{% endfor %}"
    turn = (
        "{{ message.role }}: "
        + _SAID
        + "{% if message.tool_calls %}"
        + before
        + calls
        + after
        + "{% endif %}{{ '\\n' }}"
    )
    return f"{_TOOLS}{start}{{% for message in messages %}}{turn}{{% endfor %}}"


_DEEPSEEK = {"before": "<｜tool▁calls▁begin｜>", "after": "<｜tool▁calls▁end｜>"}
TEMPLATES = {
    "mistral": "{{ tools | tojson }}{{ messages[0].content }}{{ '' and '[TOOL_CALLS]' }}",
    "mistral_args": "{{ tools | tojson }}{{ messages[0].content }}{{ '' and '[TOOL_CALLS][ARGS]' }}",
    "llama": '{{ tools | tojson }} As {{ \'{"name": function name, "parameters": dictionary of argument name and its '
    "value}' }} {{ messages[0].content }}",
    "glm": _template(
        "<tool_call>{{ call.function.name }}\n{% for key, value in call.function.arguments.items() %}"
        "<arg_key>{{ key }}</arg_key>\n"
        "<arg_value>{{ value if value is string else value | tojson(ensure_ascii=False) }}</arg_value>\n"
        "{% endfor %}</tool_call>"
    ),
    "qwen3_coder": _template(
        "<tool_call>\n<function={{ call.function.name }}>\n{% for key, value in call.function.arguments.items() %}"
        "<parameter={{ key }}>\n{{ value if value is string else value | tojson }}\n</parameter>\n"
        "{% endfor %}</function>\n</tool_call>"
    ),
    "deepseek_v3_2": _template(
        '<｜DSML｜invoke name="{{ call.function.name }}">\n{% for key, value in call.function.arguments.items() %}'
        "<｜DSML｜parameter name=\"{{ key }}\" string=\"{{ 'true' if value is string else 'false' }}\">"
        "{{ value if value is string else value | tojson }}</｜DSML｜parameter>\n{% endfor %}</｜DSML｜invoke>\n",
        before="<｜DSML｜function_calls>\n",
        after="</｜DSML｜function_calls>",
    ),
    "deepseek_v3": _template(
        "{{ '<｜tool▁call▁begin｜>' + call.type + '<｜tool▁sep｜>' + call.function.name + '\n```json\n'"
        " + call.function.arguments + '\n```<｜tool▁call▁end｜>' }}",
        **_DEEPSEEK,
    ),
    "deepseek": _template(
        "{{ '<｜tool▁call▁begin｜>' + call.function.name + '<｜tool▁sep｜>' + call.function.arguments"
        " + '<｜tool▁call▁end｜>' }}",
        **_DEEPSEEK,
    ),
    "harmony": _TOOLS + "{% for message in messages %}{% if message.tool_calls %}"
    "{% if message.thinking %}<|start|>assistant<|channel|>analysis<|message|>{{ message.thinking }}<|end|>{% endif %}"
    "{% set call = message.tool_calls[0].function %}<|start|>assistant to=functions.{{ call.name }}<|channel|>"
    "commentary json<|message|>{{ call.arguments | tojson }}<|call|>"
    "{% else %}<|start|>{{ message.role }}<|message|>{{ message.content }}<|end|>{% endif %}"
    "{% endfor %}{% if add_generation_prompt %}<|start|>assistant{% endif %}",
}
"""By format. GLM's, Qwen3-Coder's, DeepSeek's and harmony's write whole conversations; the rest are for answers."""
MARKERS = {
    "mistral": ["[TOOL_CALLS]"],
    "mistral_args": ["[TOOL_CALLS]", "[ARGS]"],
    "deepseek": [
        *("<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>", "<｜tool▁call▁begin｜>"),
        *("<｜tool▁call▁end｜>", "<｜tool▁sep｜>"),
    ],
    "deepseek_v3_2": ["｜DSML｜"],
    "harmony": ["<|start|>", "<|channel|>", "<|message|>", "<|constrain|>", "<|end|>", "<|call|>", "<|return|>"],
}
"""That are special tokens of a format's models."""
