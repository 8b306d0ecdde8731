//! Template program: one parsed chat template, and the form of content that it takes.
//!
//! ```text
//! source ──► minijinja ──► trial conversations ──► which roles' content it takes as a list of parts
//! messages ──► text or [{"type": "text", "text": …}] ──► prompt text
//! ```
//! Invariants: 1. A run is limited in steps (fuel) and in output ([`MAX_OUTPUT_BYTES`] on top of the messages), and a panic in
//! it is caught. 2. Parts are used only if a trial with text loses some of it and one with parts does not.
//! Source: `common_chat_templates` of llama.cpp, which tries both forms, too.

use std::panic::{AssertUnwindSafe, catch_unwind};

use minijinja::{Environment, Value, context};

use super::TokenError;
use super::chat_message::ChatMessage;
use super::jinja;
use super::prompt_check::{Placeholders, is_serialized};

/// Largest output of a template beyond the text of the messages, bytes.
const MAX_OUTPUT_BYTES: usize = 16 << 20;
/// Largest template source, bytes.
const MAX_SOURCE_BYTES: usize = 1 << 20;
/// Step limit of a template, and the addition per message.
const BASE_FUEL: u64 = 1_000_000;
const FUEL_PER_MESSAGE: u64 = 20_000;

/// Roles whose content is a list of parts.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Parts {
    system: bool,
    user: bool,
    assistant: bool,
}

/// Forms of content, the most common first.
const FORMS: [Parts; 8] = [
    Parts { system: false, user: false, assistant: false },
    Parts { system: true, user: true, assistant: true },
    Parts { system: false, user: true, assistant: true },
    Parts { system: false, user: true, assistant: false },
    Parts { system: true, user: true, assistant: false },
    Parts { system: true, user: false, assistant: false },
    Parts { system: false, user: false, assistant: true },
    Parts { system: true, user: false, assistant: true },
];
/// Trial conversations. A later one counts only if the template takes none before it.
const TRIALS: [&[&str]; 3] = [&["system", "user", "assistant", "user"], &["user", "assistant", "user"], &["user"]];

/// A parsed template.
#[derive(Debug)]
pub(super) struct TemplateProgram {
    environment: Environment<'static>,
    /// `model` for a model's own, else the family of a default
    pub name: &'static str,
    /// variables that some templates assume
    extras: Value,
    parts: Parts,
}

impl TemplateProgram {
    /// Parses a template.
    ///
    /// # Errors
    /// Invalid Jinja, or a source that is too long.
    pub fn parse(name: &'static str, source: &str) -> Result<Self, TokenError> {
        let bad = |reason: String| TokenError::BadTemplate { reason };
        if source.len() > MAX_SOURCE_BYTES {
            return Err(bad(format!("it has {} bytes, but at most {MAX_SOURCE_BYTES} are supported", source.len())));
        }
        let mut environment = jinja::environment();
        let extras = jinja::extras(source);
        let added = catch_unwind(AssertUnwindSafe(|| environment.add_template_owned("chat", jinja::prepared(source))));
        added.map_err(|_| bad("the parser failed on it".into()))?.map_err(|e| bad(jinja::sentence(&e)))?;
        let mut program = TemplateProgram { environment, name, extras, parts: Parts::default() };
        program.parts = program.form_of_content();
        Ok(program)
    }

    /// The first form of content that loses no message.
    fn form_of_content(&self) -> Parts {
        let keeps = |roles: &[&str], parts: Parts| {
            let messages: Vec<ChatMessage> = roles.iter().map(|role| ChatMessage::new(*role, "")).collect();
            let trial = Placeholders::of(&messages);
            let text = self.run(&trial.messages, "<s>", "</s>", true, parts);
            text.is_ok_and(|text| trial.fill(&text, &messages).is_some() && !is_serialized(&text))
        };
        let form = TRIALS.iter().find_map(|roles| FORMS.into_iter().find(|parts| keeps(roles, *parts)));
        form.unwrap_or_default()
    }

    /// Renders messages.
    ///
    /// # Errors
    /// The template rejects the messages, or exceeds a limit.
    pub fn render(&self, messages: &[ChatMessage], bos: &str, eos: &str, generate: bool) -> Result<String, TokenError> {
        self.run(messages, bos, eos, generate, self.parts)
    }

    fn run(&self, messages: &[ChatMessage], bos: &str, eos: &str, generate: bool, parts: Parts) -> Result<String, TokenError> {
        let failed = |reason: String| TokenError::Template { reason };
        let none = Value::from(());
        let messages_value: Value = messages.iter().map(|message| message_value(message, parts)).collect();
        let context = context! {
            messages => messages_value, bos_token => bos, eos_token => eos, add_generation_prompt => generate,
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

fn message_value(message: &ChatMessage, parts: Parts) -> Value {
    let is_list = match message.role.as_str() {
        "system" => parts.system,
        "user" => parts.user,
        _ => parts.assistant,
    };
    let text = Value::from(message.content.as_str());
    let content = if is_list { Value::from(vec![context! { type => "text", text }]) } else { text };
    context! { role => message.role, content }
}
