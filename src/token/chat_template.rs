//! Chat template: turns a conversation into the model's prompt format, by its own Jinja template or a default one.
//!
//! ```text
//! [ChatMessage] ──► template (minijinja + Hugging Face's additions) ──► "<|im_start|>user\n…" ──► token ids
//! ```
//! Invariants: 1. A template is limited in steps (fuel) and in output ([`MAX_OUTPUT_BYTES`] on top of the messages), and a
//! panic in it is caught. 2. Text of a message never becomes a control token ([`Tokenizer::escape_special`]). 3. A system
//! message is never lost: if the template rejects or drops it, it goes in front of the first user message, and
//! [`Rendered::note`] reports that.
//! Source: `apply_chat_template` of Hugging Face transformers. Difference: a missing bos or eos is "".

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

use minijinja::{Environment, context};

use super::TokenError;
use super::hf_json::{read_json, token_name};
use super::jinja;
use super::tokenizer::Tokenizer;

/// Largest output of a template beyond the text of the messages, bytes.
const MAX_OUTPUT_BYTES: usize = 16 << 20;
/// Largest template source, bytes.
const MAX_SOURCE_BYTES: usize = 1 << 20;
/// Step limit of a template, and the addition per message.
const BASE_FUEL: u64 = 1_000_000;
const FUEL_PER_MESSAGE: u64 = 20_000;

const CHATML: &str = "{% for m in messages %}{{ '<|im_start|>' + m['role'] + '\n' + m['content'] + '<|im_end|>\n' }}{% endfor %}\
{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}";
const PLAIN: &str = "{% for m in messages %}{% if m['role'] == 'user' %}{{ 'User: ' + m['content'] + '\n' }}\
{% elif m['role'] == 'assistant' %}{{ 'Assistant: ' + m['content'] + eos_token + '\n' }}\
{% else %}{{ m['content'] + '\n\n' }}{% endif %}{% endfor %}{% if add_generation_prompt %}{{ 'Assistant:' }}{% endif %}";

/// One message of a conversation.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct ChatMessage {
    /// `system`, `user` or `assistant`
    pub role: String,
    /// text of the message
    pub content: String,
}

impl ChatMessage {
    /// A message of a role.
    pub fn new(role: impl Into<String>, content: impl Into<String>) -> Self {
        ChatMessage { role: role.into(), content: content.into() }
    }
}

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
    environment: Environment<'static>,
    name: &'static str,
    note: Option<String>,
    /// variables that some templates assume
    extras: minijinja::Value,
}

impl ChatTemplate {
    /// The model's own template.
    ///
    /// # Errors
    /// Invalid Jinja, or a source that is too long.
    pub fn parse(source: &str) -> Result<Self, TokenError> {
        Self::named("model", source)
    }

    /// The model's own template, or a default if it has none or an invalid one. [`ChatTemplate::note`] reports an invalid one.
    ///
    /// # Errors
    /// None in practice, because the defaults are valid.
    pub fn for_model(source: Option<&str>, tokenizer: &Tokenizer) -> Result<Self, TokenError> {
        let mut note = None;
        if let Some(source) = source.filter(|s| !s.trim().is_empty()) {
            match Self::parse(source) {
                Ok(template) => return Ok(template),
                Err(error) => note = Some(error.to_string()),
            }
        }
        let is_chatml = tokenizer.special_id("<|im_start|>").is_some() && tokenizer.special_id("<|im_end|>").is_some();
        let mut template = if is_chatml { Self::named("chatml", CHATML) } else { Self::named("plain", PLAIN) }?;
        template.note = note.map(|reason| format!("{reason}. The '{}' form is used, so answers may be worse.", template.name));
        Ok(template)
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

    fn named(name: &'static str, source: &str) -> Result<Self, TokenError> {
        let bad = |reason: String| TokenError::BadTemplate { reason };
        if source.len() > MAX_SOURCE_BYTES {
            return Err(bad(format!("it has {} bytes, but at most {MAX_SOURCE_BYTES} are supported", source.len())));
        }
        let mut environment = jinja::environment();
        let source = jinja::without_generation_tags(source);
        let extras = jinja::extras(&source);
        let added = catch_unwind(AssertUnwindSafe(|| environment.add_template_owned("chat", source)));
        added.map_err(|_| bad("the parser failed on it".into()))?.map_err(|e| bad(jinja::sentence(&e)))?;
        Ok(ChatTemplate { environment, name, note: None, extras })
    }

    /// `model` for the model's own template, `chatml` or `plain` for a default.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// Reason that a default replaces the model's own template. None if it does not.
    pub fn note(&self) -> Option<&str> {
        self.note.as_deref()
    }

    /// Renders the conversation. With `add_generation_prompt` it ends where the assistant's answer begins.
    ///
    /// # Errors
    /// The template rejects the messages, or exceeds a limit.
    pub fn render(
        &self,
        messages: &[ChatMessage],
        bos: &str,
        eos: &str,
        add_generation_prompt: bool,
    ) -> Result<Rendered, TokenError> {
        let as_is = self.render_once(messages, bos, eos, add_generation_prompt);
        let system = messages.first().filter(|m| m.role == "system" && !m.content.trim().is_empty());
        let Some((system, folded)) = system.and_then(|s| Some((s, fold_system(messages)?))) else {
            return Ok(Rendered { text: as_is?, note: None });
        };
        match as_is {
            Ok(text) if text.contains(system.content.trim()) => Ok(Rendered { text, note: None }),
            Ok(_) => self.render_once(&folded, bos, eos, add_generation_prompt).map(with_folded_note),
            // The first error refers to the conversation as the user wrote it.
            Err(error) => self.render_once(&folded, bos, eos, add_generation_prompt).map(with_folded_note).map_err(|_| error),
        }
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
        let escaped: Vec<ChatMessage> =
            messages.iter().map(|m| ChatMessage::new(m.role.clone(), tokenizer.escape_special(&m.content))).collect();
        let rendered = self.render(&escaped, &text_of(ids.bos)?, &text_of(ids.eos)?, add_generation_prompt)?;
        let mut tokens = tokenizer.encode(&rendered.text, true)?;
        if let Some(bos) = tokenizer.bos_if_added().filter(|bos| tokens.first() != Some(bos)) {
            tokens.insert(0, bos);
        }
        Ok(Prompt { tokens, note: rendered.note })
    }

    fn render_once(&self, messages: &[ChatMessage], bos: &str, eos: &str, generate: bool) -> Result<String, TokenError> {
        let failed = |reason: String| TokenError::Template { reason };
        let none = minijinja::Value::from(());
        let context = context! {
            messages, bos_token => bos, eos_token => eos, add_generation_prompt => generate,
            tools => none, documents => none, ..self.extras.clone()
        };
        let mut environment = self.environment.clone();
        let n_messages = u64::try_from(messages.len()).unwrap_or(u64::MAX);
        environment.set_fuel(Some(BASE_FUEL.saturating_add(FUEL_PER_MESSAGE.saturating_mul(n_messages))));
        let content_bytes: usize = messages.iter().map(|m| m.content.len()).sum();
        let mut out = jinja::Bounded::new(content_bytes.saturating_mul(2).saturating_add(MAX_OUTPUT_BYTES));
        let run = catch_unwind(AssertUnwindSafe(|| {
            environment.get_template("chat").and_then(|t| t.render_captured_to(context, &mut out).map(|_| ()))
        }));
        run.map_err(|_| failed("it failed on these messages".into()))?.map_err(|e| failed(jinja::sentence(&e)))?;
        out.into_string().map_err(|_| failed("its output is not text".into()))
    }
}

fn with_folded_note(text: String) -> Rendered {
    let note = "The model's chat template has no place for instructions. They were put in front of the first message.";
    Rendered { text, note: Some(note.to_owned()) }
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
fn template_of_config(config: &serde_json::Value) -> Option<&str> {
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
        assert_eq!(render(CHATML, &messages).unwrap().text, chatml);
        let plain = "Be kind.\n\nUser: Hi\nAssistant: Hello</s>\nUser: Bye\nAssistant:";
        assert_eq!(render(PLAIN, &messages).unwrap().text, plain);
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
        let sentence = render(rejects, &[message("system", "Be kind.")]).unwrap_err().to_string();
        assert!(sentence.contains("No system!"), "{sentence}");
    }

    #[test]
    fn hostile_templates_end_with_an_error() {
        let endless = "{% for a in range(99999) %}{% for b in range(99999) %}{% for c in range(99999) %}x{% endfor %}{% endfor %}{% endfor %}";
        let large = "{% for a in range(9999) %}{{ 'x' * 99999 }}{% endfor %}";
        let deep = "{% macro m(n) %}{{ m(n + 1) }}{% endmacro %}{{ m(0) }}";
        let overflow = "{{ ([1] * 9223372036854775807 * 9223372036854775807) | length }}";
        let wide = "{{ 'a\nb' | indent(99999999999999) }}";
        let json = "{{ messages | tojson(indent=99999999999999) }}";
        let undefined = "{{ messages[99].content.more }}";
        for source in [endless, large, deep, overflow, wide, json, undefined, "{% include 'x' %}"] {
            let error = render(source, &[message("user", "Hi")]).unwrap_err();
            assert!(matches!(error, TokenError::Template { .. }), "{source}: {error}");
        }
        let nested = format!("{}1{}", "(".repeat(100_000), ")".repeat(100_000));
        for source in ["{% if %}", "{{ 'a", "{% for %}", &"{".repeat(2 << 20), &format!("{{{{ {nested} }}}}")] {
            assert!(matches!(ChatTemplate::parse(source), Err(TokenError::BadTemplate { .. })), "{:.20}", source);
        }
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
