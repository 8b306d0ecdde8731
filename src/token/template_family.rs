//! Template families: chat templates that keep every message whole, for models without a usable one of their own.
//!
//! A family is known by its special tokens.

use super::tokenizer::Tokenizer;

/// A family of models with the same chat format.
#[derive(Debug, Clone, Copy)]
pub(super) struct TemplateFamily {
    /// name in notices
    pub name: &'static str,
    /// its template
    pub source: &'static str,
    /// special tokens that all of its models have
    marks: &'static [&'static str],
}

/// For models without any known special token.
pub(super) const PLAIN: TemplateFamily = TemplateFamily {
    name: "plain",
    source: "{% for m in messages %}{% if m['role'] == 'user' %}{{ 'User: ' + m['content'] + '\n' }}\
             {% elif m['role'] == 'assistant' %}{{ 'Assistant: ' + m['content'] + eos_token + '\n' }}\
             {% else %}{{ m['content'] + '\n\n' }}{% endif %}{% endfor %}\
             {% if add_generation_prompt %}{{ 'Assistant:' }}{% endif %}",
    marks: &[],
};

/// All families; the last one fits every model.
pub(super) const FAMILIES: [TemplateFamily; 4] = [
    TemplateFamily {
        name: "chatml",
        source: "{% for m in messages %}{{ '<|im_start|>' + m['role'] + '\n' + m['content'] + '<|im_end|>\n' }}{% endfor %}\
                 {% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}",
        marks: &["<|im_start|>", "<|im_end|>"],
    },
    TemplateFamily {
        name: "llama",
        source: "{{ bos_token }}{% for m in messages %}\
                 {{ '<|start_header_id|>' + m['role'] + '<|end_header_id|>\n\n' + m['content'] + '<|eot_id|>' }}{% endfor %}\
                 {% if add_generation_prompt %}{{ '<|start_header_id|>assistant<|end_header_id|>\n\n' }}{% endif %}",
        marks: &["<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"],
    },
    TemplateFamily {
        name: "gemma",
        source: "{{ bos_token }}{% for m in messages %}{% set role = 'model' if m['role'] == 'assistant' else 'user' %}\
                 {{ '<start_of_turn>' + role + '\n' + m['content'] + '<end_of_turn>\n' }}{% endfor %}\
                 {% if add_generation_prompt %}{{ '<start_of_turn>model\n' }}{% endif %}",
        marks: &["<start_of_turn>", "<end_of_turn>"],
    },
    PLAIN,
];

impl TemplateFamily {
    /// Family of a model, by its special tokens.
    pub fn of(tokenizer: &Tokenizer) -> TemplateFamily {
        let is_of = |family: &TemplateFamily| family.marks.iter().all(|mark| tokenizer.special_id(mark).is_some());
        FAMILIES.into_iter().find(is_of).unwrap_or(PLAIN)
    }
}
