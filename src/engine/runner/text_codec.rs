//! Text codec: from text to tokens, and from a conversation to a prompt.

use std::cell::RefCell;
use std::collections::HashSet;
use std::sync::Arc;

use crate::engine::error::EngineError;
use crate::model::{ModelFile, TokenizerSource};
use crate::token::{ChatTemplate, Prompt, Tokenizer};

/// Tokenizer and chat template of a model.
pub(in crate::engine) struct TextCodec {
    pub(in crate::engine) tokenizer: Arc<Tokenizer>,
    pub(in crate::engine) template: ChatTemplate,
    /// notices of prompts that were emitted
    noted: RefCell<HashSet<String>>,
}

impl TextCodec {
    /// Loads tokenizer and template of `file`.
    ///
    /// # Errors
    /// An unsupported vocabulary or template.
    pub(in crate::engine) fn open(file: &ModelFile) -> Result<TextCodec, EngineError> {
        let tokenizer = match file.tokenizer()? {
            TokenizerSource::Gguf(vocab) => Tokenizer::from_gguf(&vocab)?,
            TokenizerSource::HuggingFace(f) => {
                Tokenizer::from_json_files(&f.tokenizer, f.tokenizer_config.as_deref(), f.generation_config.as_deref())?
            }
        };
        let source = file.info().chat_template.as_deref();
        let tokenizer = tokenizer.with_marks_of(&ChatTemplate::marks(source))?;
        let template = ChatTemplate::for_model(source, &tokenizer)?;
        Ok(TextCodec { tokenizer: Arc::new(tokenizer), template, noted: RefCell::default() })
    }

    /// The notice of a prompt, unless it was returned before: the same one would follow every question.
    pub(in crate::engine) fn new_note(&self, prompt: &mut Prompt) -> Option<String> {
        prompt.note.take().filter(|note| self.noted.borrow_mut().insert(note.clone()))
    }
}
