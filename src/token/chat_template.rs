//! Chat template: turns a conversation into the model's prompt format, by its own Jinja template or a default one.
//!
//! ```text
//! [ChatMessage] ──► template (minijinja + Hugging Face's additions) ──► "<|im_start|>user\n…" ──► token ids
//! ```
//! Invariants: 1. Every message is in the prompt, once and in order ([`super::prompt_check`]); a template that loses some of it
//! or fails is replaced by the default of the model's family, and [`Rendered::note`] reports that. 2. Text of a message never
//! becomes a mark ([`Tokenizer::escape_special`]). 3. A system message is never lost: if the template rejects or drops it, it
//! goes in front of the first user message, and [`Rendered::note`] reports that.
//! Source: `apply_chat_template` of Hugging Face transformers. Difference: a missing bos or eos is "".

use std::path::Path;

use super::TokenError;
use super::chat_message::ChatMessage;
use super::hf_json::{read_json, token_name};
use super::prompt_check::{Placeholders, is_strict, is_whole};
use super::reasoning::without_reasoning;
use super::template_family::{FAMILIES, PLAIN, TemplateFamily};
use super::template_program::TemplateProgram;
use super::tokenizer::Tokenizer;

/// A conversation as prompt text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rendered {
    /// input for [`Tokenizer::encode`] with `parse_special`
    pub text: String,
    /// a notice for the user
    pub note: Option<String>,
}

/// A conversation as prompt tokens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Prompt {
    /// token ids; BOS first if the model uses it
    pub tokens: Vec<u32>,
    /// a notice for the user
    pub note: Option<String>,
}

/// A parsed chat template.
#[derive(Debug)]
pub struct ChatTemplate {
    /// the model's own
    own: Option<TemplateProgram>,
    /// used if the model has none, or if its own fails
    default: TemplateProgram,
    note: Option<String>,
}

impl ChatTemplate {
    /// The model's own template.
    ///
    /// # Errors
    /// Invalid Jinja, or a source that is too long.
    pub fn parse(source: &str) -> Result<Self, TokenError> {
        let default = TemplateProgram::parse(PLAIN.name, PLAIN.source)?;
        Ok(ChatTemplate { own: Some(TemplateProgram::parse("model", source)?), default, note: None })
    }

    /// The model's own template, or a default if it has none or an invalid one. [`ChatTemplate::note`] reports an invalid one.
    ///
    /// # Errors
    /// None in practice, because the defaults are valid.
    pub fn for_model(source: Option<&str>, tokenizer: &Tokenizer) -> Result<Self, TokenError> {
        let family = TemplateFamily::of(tokenizer);
        let default = TemplateProgram::parse(family.name, family.source)?;
        let own = source.filter(|s| !s.trim().is_empty()).map(|source| TemplateProgram::parse("model", source));
        let (own, note) = match own {
            Some(Ok(own)) => (Some(own), None),
            Some(Err(error)) => (None, Some(note_of_default(&error.to_string(), family.name))),
            None => (None, None),
        };
        Ok(ChatTemplate { own, default, note })
    }

    /// Text with the marks that prompts of a model may have: those of its own template, and of every default.
    pub fn marks(source: Option<&str>) -> String {
        let sources = source.into_iter().chain(FAMILIES.iter().map(|family| family.source));
        sources.collect::<Vec<_>>().join("\n")
    }

    /// The template of a Hugging Face folder: `chat_template.jinja`, or `chat_template` in `tokenizer_config.json`.
    ///
    /// # Errors
    /// A file that cannot be read.
    pub fn from_folder(folder: &Path, tokenizer: &Tokenizer) -> Result<Self, TokenError> {
        let alone = folder.join("chat_template.jinja");
        let config = folder.join("tokenizer_config.json");
        if alone.is_file() {
            let reason = |e: std::io::Error| TokenError::Unreadable { path: alone.clone(), reason: e.to_string() };
            return Self::for_model(Some(&std::fs::read_to_string(&alone).map_err(reason)?), tokenizer);
        }
        let config = if config.is_file() { read_json(&config)? } else { serde_json::Value::Null };
        Self::for_model(template_of_config(&config), tokenizer)
    }

    /// `model` for the model's own template, `chatml`, `llama`, `gemma` or `plain` for a default.
    pub fn name(&self) -> &'static str {
        self.own.as_ref().unwrap_or(&self.default).name
    }

    /// Reason that a default replaces the model's own template. None if it does not.
    pub fn note(&self) -> Option<&str> {
        self.note.as_deref()
    }

    /// Renders the conversation. With `add_generation_prompt` it ends where the assistant's answer begins.
    ///
    /// # Errors
    /// None in practice, because the defaults take any conversation.
    pub fn render(
        &self,
        messages: &[ChatMessage],
        bos: &str,
        eos: &str,
        add_generation_prompt: bool,
    ) -> Result<Rendered, TokenError> {
        let run = |program: &TemplateProgram, messages: &[ChatMessage]| program.render(messages, bos, eos, add_generation_prompt);
        let Some(own) = &self.own else { return Ok(Rendered { text: run(&self.default, messages)?, note: None }) };
        let folded = messages.first().filter(|m| m.role == "system" && !m.content.trim().is_empty());
        let folded = folded.and_then(|_| fold_system(messages));
        let mut reason = None;
        for (messages, is_folded) in std::iter::once((messages, false)).chain(folded.as_deref().map(|folded| (folded, true))) {
            let filled = |trial: Placeholders| run(own, &trial.messages).ok().and_then(|text| trial.fill(&text, messages));
            let keeps_places = || !messages.iter().any(is_strict) || filled(Placeholders::of_same_length(messages)).is_some();
            let note = || is_folded.then(|| FOLDED_NOTE.to_owned());
            match run(own, messages) {
                Ok(text) if is_whole(messages, &text) && keeps_places() => {
                    return Ok(Rendered { text, note: note() });
                }
                Ok(_) => reason = reason.or(Some("The model's chat template loses text of this conversation".to_owned())),
                // The first error refers to the conversation as the user wrote it.
                Err(error) => reason = reason.or(Some(error.to_string())),
            }
            // The template would change the text of a message, but keeps its place.
            if let Some(text) = filled(Placeholders::of(messages)) {
                return Ok(Rendered { text, note: note().or(Some(UNCHANGED_NOTE.to_owned())) });
            }
        }
        let note = reason.map(|reason| note_of_default(&reason, self.default.name));
        Ok(Rendered { text: run(&self.default, messages)?, note })
    }

    /// Renders and encodes the conversation.
    ///
    /// # Errors
    /// Those of [`ChatTemplate::render`] and [`Tokenizer::encode`].
    pub fn prompt(
        &self,
        tokenizer: &Tokenizer,
        messages: &[ChatMessage],
        add_generation_prompt: bool,
    ) -> Result<Prompt, TokenError> {
        let ids = tokenizer.special_ids();
        let text_of = |id: Option<u32>| match id.map(|id| tokenizer.token_bytes(id)).transpose() {
            Ok(bytes) => Ok(String::from_utf8_lossy(&bytes.unwrap_or_default()).into_owned()),
            Err(error) => Err(error),
        };
        let escaped = |message: &ChatMessage| {
            let is_answer = message.role == "assistant";
            let content = if is_answer { without_reasoning(&message.content) } else { message.content.as_str().into() };
            ChatMessage::new(message.role.clone(), tokenizer.escape_special(&content))
        };
        let escaped: Vec<ChatMessage> = messages.iter().map(escaped).collect();
        let rendered = self.render(&escaped, &text_of(ids.bos)?, &text_of(ids.eos)?, add_generation_prompt)?;
        let mut tokens = tokenizer.encode(&rendered.text, true)?;
        if let Some(bos) = tokenizer.bos_if_added().filter(|bos| tokens.first() != Some(bos)) {
            tokens.insert(0, bos);
        }
        Ok(Prompt { tokens, note: rendered.note })
    }
}

const FOLDED_NOTE: &str = "The model's chat template has no place for instructions. They were put in front of the first message.";
const UNCHANGED_NOTE: &str = "The model's chat template would change the text of this conversation. It was put in unchanged.";

fn note_of_default(reason: &str, name: &str) -> String {
    format!("{}. The '{name}' form is used, so answers may be worse.", reason.trim_end_matches('.'))
}

/// Moves the system message in front of the first user message.
fn fold_system(messages: &[ChatMessage]) -> Option<Vec<ChatMessage>> {
    let (system, rest) = messages.split_first()?;
    let mut folded = rest.to_vec();
    let user = folded.iter_mut().find(|m| m.role == "user")?;
    user.content = format!("{}\n\n{}", system.content, user.content);
    Some(folded)
}

/// The template in `tokenizer_config.json`: a string, or the entry named `default` of a list.
pub(crate) fn template_of_config(config: &serde_json::Value) -> Option<&str> {
    let template = config.get("chat_template")?;
    let list = || {
        let named = |t: &&serde_json::Value| t.get("name").and_then(token_name) == Some("default");
        let list = template.as_array()?;
        list.iter().find(named).or(list.first())?.get("template")?.as_str()
    };
    template.as_str().or_else(list)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(role: &str, content: &str) -> ChatMessage {
        ChatMessage::new(role, content)
    }

    fn render(source: &str, messages: &[ChatMessage]) -> Result<Rendered, TokenError> {
        ChatTemplate::parse(source)?.render(messages, "<s>", "</s>", true)
    }

    #[test]
    fn render_defaults_match_their_format() {
        let messages =
            [message("system", "Be kind."), message("user", "Hi"), message("assistant", "Hello"), message("user", "Bye")];
        let chatml = "<|im_start|>system\nBe kind.<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\nHello<|im_end|>\n\
                      <|im_start|>user\nBye<|im_end|>\n<|im_start|>assistant\n";
        assert_eq!(render(FAMILIES[0].source, &messages).unwrap().text, chatml);
        let plain = "Be kind.\n\nUser: Hi\nAssistant: Hello</s>\nUser: Bye\nAssistant:";
        assert_eq!(render(PLAIN.source, &messages).unwrap().text, plain);
    }

    #[test]
    fn rejected_or_dropped_system_message_moves_to_the_first_user_message() {
        let rejects = "{% for m in messages %}{% if m.role == 'system' %}{{ raise_exception('No system!') }}{% endif %}\
                       [{{ m.role }}:{{ m.content }}]{% endfor %}";
        let drops = "{% for m in messages %}{% if m.role != 'system' %}[{{ m.role }}:{{ m.content }}]{% endif %}{% endfor %}";
        for source in [rejects, drops] {
            let rendered = render(source, &[message("system", "Be kind."), message("user", "Hi")]).unwrap();
            assert_eq!(rendered.text, "[user:Be kind.\n\nHi]");
            assert!(rendered.note.unwrap().contains("in front of the first message"));
            assert_eq!(render(source, &[message("user", "Hi")]).unwrap().note, None);
        }
        let note = render(rejects, &[message("system", "Be kind.")]).unwrap().note.unwrap();
        assert!(note.contains("No system!") && note.contains("'plain'"), "{note}");
    }

    #[test]
    fn hostile_templates_are_replaced_by_a_default() {
        let endless = "{% for a in range(99999) %}{% for b in range(99999) %}{% for c in range(99999) %}x{% endfor %}{% endfor %}{% endfor %}";
        let large = "{% for a in range(9999) %}{{ 'x' * 99999 }}{% endfor %}";
        let deep = "{% macro m(n) %}{{ m(n + 1) }}{% endmacro %}{{ m(0) }}";
        let overflow = "{{ ([1] * 9223372036854775807 * 9223372036854775807) | length }}";
        let wide = "{{ 'a\nb' | indent(99999999999999) }}";
        let json = "{{ messages | tojson(indent=99999999999999) }}";
        let undefined = "{{ messages[99].content.more }}";
        for source in [endless, large, deep, overflow, wide, json, undefined, "{% include 'x' %}"] {
            let rendered = render(source, &[message("user", "Hi")]).unwrap();
            assert_eq!(rendered.text, "User: Hi\nAssistant:", "{source}");
            assert!(rendered.note.unwrap().contains("does not accept this conversation"), "{source}");
        }
        let nested = format!("{}1{}", "(".repeat(100_000), ")".repeat(100_000));
        for source in ["{% if %}", "{{ 'a", "{% for %}", &"{".repeat(2 << 20), &format!("{{{{ {nested} }}}}")] {
            assert!(matches!(ChatTemplate::parse(source), Err(TokenError::BadTemplate { .. })), "{:.20}", source);
        }
    }

    #[test]
    fn template_gets_parts_if_it_takes_parts() {
        let messages = [
            message("system", "Be kind."),
            message("user", "A text.\n\nWhy?"),
            message("assistant", "So."),
            message("user", "And?"),
        ];
        let all = "[system:Be kind.][user:A text.\n\nWhy?][assistant:So.][user:And?]";
        for source in [
            "{% for m in messages %}[{{ m.role }}:{% for p in m.content %}{% if p.type == 'text' %}{{ p.text }}{% endif %}{% endfor %}]{% endfor %}",
            "{% for m in messages %}[{{ m.role }}:{{ m.content[0]['text'] }}]{% endfor %}",
            "{% for m in messages %}[{{ m.role }}:{% if m.role == 'user' %}{{ m.content[0].text }}{% else %}{{ m.content }}{% endif %}]{% endfor %}",
            "{% for m in messages %}[{{ m.role }}:{% if m.content is string %}{{ m.content }}{% else %}{% for p in m.content %}{{ p.text }}{% endfor %}{% endif %}]{% endfor %}",
        ] {
            let rendered = render(source, &messages).unwrap();
            assert_eq!((rendered.text.as_str(), rendered.note), (all, None), "{source}");
        }
    }

    #[test]
    fn template_that_loses_text_is_not_used() {
        let document = format!("The mill.\n{}\n\nWhy?", "It is old. ".repeat(60));
        let messages = [message("user", &document), message("assistant", "So."), message("user", "And?")];
        let plain = format!("User: {document}\nAssistant: So.</s>\nUser: And?\nAssistant:");
        for source in [
            "{% for m in messages[1:] %}[{{ m.content }}]{% endfor %}",
            "{% for m in messages | reverse %}[{{ m.content }}]{% endfor %}",
            "{% for m in messages %}[{{ m.content }}{{ m.content }}]{% endfor %}",
            "{{ messages[-1].content }}",
            "{{ unknown(messages) }}",
        ] {
            let rendered = render(source, &messages).unwrap();
            assert_eq!(rendered.text, plain, "{source}");
            assert!(rendered.note.unwrap().contains("template"), "{source}");
        }
        let kept = format!("[{document}][So.][And?]");
        for source in [
            "{% for m in messages %}[{{ m.content[:200] }}]{% endfor %}",
            "{% for m in messages %}[{{ m.content | replace('old', 'new') }}]{% endfor %}",
            "{% for m in messages %}[{{ m.content }}{% if m.content | length > 200 %}{{ m.content }}{% endif %}]{% endfor %}",
        ] {
            let rendered = render(source, &messages).unwrap();
            assert_eq!(rendered.text, kept, "{source}");
            assert!(rendered.note.unwrap().contains("put in unchanged"), "{source}");
        }
        let doubles_short = "{% for m in messages %}[{{ m.content }}\
                             {% if m.content | length < 50 and loop.first %}{{ m.content }}{% endif %}]{% endfor %}";
        assert_eq!(render(doubles_short, &messages).unwrap(), Rendered { text: kept, note: None });
    }

    #[test]
    fn template_of_config_string_or_list() {
        use serde_json::json;
        assert_eq!(template_of_config(&json!({"chat_template": "a"})), Some("a"));
        let list = json!({"chat_template": [{"name": "rag", "template": "r"}, {"name": "default", "template": "d"}]});
        assert_eq!(template_of_config(&list), Some("d"));
        assert_eq!(template_of_config(&json!({})), None);
    }
}
