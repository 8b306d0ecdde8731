//! Prompt check: every message is in the prompt, once and in order.
//!
//! ```text
//! messages ──► Placeholders ──► template ──► each placeholder once, in order? ──► filled with the contents
//! messages ──► template ──► each content whole, in order?
//! ```
//! Invariants: 1. A message of several lines, such as one with a document, has to be in the prompt letter by letter, but for
//! white space at its ends, and as often as in the conversation. 2. A template may reword a short message of one line; its
//! letters have to be there in order. 3. System messages may be anywhere.

use super::chat_message::ChatMessage;

/// Longest message that a template may reword, bytes.
const MAX_REWORDED_BYTES: usize = 200;

/// The same conversation with a unique text in place of each content.
pub(super) struct Placeholders {
    /// messages to render
    pub messages: Vec<ChatMessage>,
}

impl Placeholders {
    /// Short placeholders for these messages.
    pub fn of(messages: &[ChatMessage]) -> Self {
        let message =
            |(i, m): (usize, &ChatMessage)| ChatMessage::new(m.role.clone(), format!("The text of message {i} is here."));
        Placeholders { messages: messages.iter().enumerate().map(message).collect() }
    }

    /// Placeholders as long as the messages that a template must not reword, so that a template that looks at their length
    /// treats them alike; short ones for the others.
    pub fn of_same_length(messages: &[ChatMessage]) -> Self {
        let mut placeholders = Self::of(messages);
        for (placeholder, message) in placeholders.messages.iter_mut().zip(messages).filter(|(_, m)| is_strict(m)) {
            let missing = message.content.chars().count().saturating_sub(placeholder.content.chars().count());
            placeholder.content.push_str(&".".repeat(missing));
        }
        placeholders
    }

    /// The rendered text with the contents of `messages`; None unless each placeholder is in it once, and in order.
    pub fn fill(&self, rendered: &str, messages: &[ChatMessage]) -> Option<String> {
        let mut places = Vec::with_capacity(messages.len());
        for (placeholder, message) in self.messages.iter().zip(messages) {
            let mut found = rendered.match_indices(placeholder.content.as_str());
            let at = found.next()?.0;
            if found.next().is_some() {
                return None;
            }
            places.push((at, placeholder.content.len(), message));
        }
        let in_order: Vec<usize> = places.iter().filter(|(_, _, m)| m.role != "system").map(|(at, ..)| *at).collect();
        if !in_order.is_sorted() {
            return None;
        }
        places.sort_by_key(|(at, ..)| *at);
        let (mut out, mut copied) = (String::new(), 0);
        for (at, len, message) in places {
            out.push_str(rendered.get(copied..at)?);
            out.push_str(&message.content);
            copied = at + len;
        }
        Some(out + rendered.get(copied..)?)
    }
}

/// True if the text shows a list of parts as a value, rather than the text of the parts.
pub(super) fn is_serialized(text: &str) -> bool {
    ["'type': 'text'", "\"type\": \"text\"", "\"type\":\"text\""].iter().any(|value| text.contains(value))
}

/// True if a template must not reword the message.
pub(super) fn is_strict(message: &ChatMessage) -> bool {
    let content = message.content.trim();
    content.len() > MAX_REWORDED_BYTES || content.contains('\n')
}

/// True if every message is in the text, and all but system messages in order. Those that a template must not reword are in it
/// as often as in the messages.
pub(super) fn is_whole(messages: &[ChatMessage], text: &str) -> bool {
    let is_repeated = |message: &ChatMessage| {
        let content = message.content.trim();
        let n_given: usize = messages.iter().map(|other| other.content.matches(content).count()).sum();
        text.matches(content).nth(n_given).is_some()
    };
    let mut rest = text;
    let is_in_order = messages.iter().all(|message| {
        let from = if message.role == "system" { text } else { rest };
        let Some(after) = after_message(message, from) else { return false };
        rest = if message.role == "system" { rest } else { after };
        true
    });
    is_in_order && !messages.iter().filter(|message| is_strict(message)).any(is_repeated)
}

/// Text after the first place that has the message; None if there is none.
fn after_message<'t>(message: &ChatMessage, text: &'t str) -> Option<&'t str> {
    let content = message.content.trim();
    match text.find(content) {
        Some(at) => text.get(at + content.len()..),
        None if is_strict(message) => None,
        None => after_letters(content, text),
    }
}

/// Text after the letters and signs of `content`, in order, in any case, with anything between them.
fn after_letters<'t>(content: &str, text: &'t str) -> Option<&'t str> {
    let mut rest = text.char_indices();
    for wanted in content.chars().filter(|c| !c.is_whitespace()) {
        rest.find(|(_, c)| c.to_lowercase().eq(wanted.to_lowercase()))?;
    }
    text.get(rest.offset()..)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn messages(contents: &[&str]) -> Vec<ChatMessage> {
        let role = |i: usize| if i.is_multiple_of(2) { "user" } else { "assistant" };
        contents.iter().enumerate().map(|(i, content)| ChatMessage::new(role(i), *content)).collect()
    }

    #[test]
    fn long_messages_are_whole_letter_by_letter_and_in_order() {
        let document = "The rule of\nthe gate: -5.\n\nWhy?";
        let chat = messages(&[document, "So.", "And then?"]);
        assert!(is_whole(&chat, &format!("<u>{document}<a>So.<u>And then?<a>")));
        assert!(is_whole(&messages(&[&format!(" {document}\n")]), document), "white space at the ends");
        for wrong in [
            "<u>The rule of\nthe gate: 5.\n\nWhy?<a>So.<u>And then?",
            "<u>The rule of\nthe gate: -5.<a>So.<u>And then?",
            "<u>And then?<a>So.<u>The rule of\nthe gate: -5.\n\nWhy?",
            "<u>The rule of\nthe gate: -5.\n\nWhy?<a>So.",
            "<u>The rule of\nthe gate: -5.\n\nWhy?The rule of\nthe gate: -5.\n\nWhy?<a>So.<u>And then?",
        ] {
            assert!(!is_whole(&chat, wrong), "{wrong}");
        }
        let repeated = messages(&[document, "So.", &format!("It says:\n{document}")]);
        assert!(is_whole(&repeated, &format!("<u>{document}<a>So.<u>It says:\n{document}")), "a message within another");
    }

    #[test]
    fn short_messages_may_be_reworded_but_not_dropped() {
        let chat = messages(&["What is said?"]);
        for reworded in ["WHAT | is said?", "What|said?|What is|said?", "What\nis\nsaid?"] {
            assert!(is_whole(&chat, reworded), "{reworded}");
        }
        for lost in ["", "What is", "said? What is"] {
            assert!(!is_whole(&chat, lost), "{lost}");
        }
    }

    #[test]
    fn placeholders_are_filled_only_once_and_in_order() {
        let chat = messages(&["a {{ x }} $0", "b"]);
        let trial = Placeholders::of(&chat);
        let [first, second] = [&trial.messages[0].content, &trial.messages[1].content];
        assert_eq!(trial.fill(&format!("[{first}][{second}]"), &chat).as_deref(), Some("[a {{ x }} $0][b]"));
        for wrong in [format!("{second}{first}"), format!("{first}{first}{second}"), first.clone()] {
            assert_eq!(trial.fill(&wrong, &chat), None);
        }
    }
}
