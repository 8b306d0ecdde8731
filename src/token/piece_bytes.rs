//! Piece bytes: the bytes that each token id adds to a text.
//!
//! ```text
//! "Ġhello" (byte-level)  ─┐
//! "▁hello" (SentencePiece)─┼─► " hello"      one blob of bytes, an end offset and a kind per id
//! "<0x0A>" (byte)         ─┘─► "\n"
//! ```
//! Source: GPT-2's `bytes_to_unicode` (every byte gets a printable character); SentencePiece's U+2581 for a space.

use super::TokenError;

/// Kind of a token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PieceKind {
    /// part of the text
    Text,
    /// `<|im_end|>`: hidden in decoded text
    Control,
}

/// Form of token texts in the vocabulary.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Spelling {
    /// one character per byte
    ByteLevel,
    /// U+2581 for a space, `<0x0A>` for a byte
    Metaspace,
    /// unchanged
    Literal,
}

/// Bytes and kind of every token.
#[derive(Debug, Default)]
pub(super) struct Pieces {
    bytes: Vec<u8>,
    ends: Vec<usize>,
    kinds: Vec<PieceKind>,
}

impl Pieces {
    /// Appends the token with the next id.
    pub fn push(&mut self, text: &str, spelling: Spelling, kind: PieceKind) {
        match spelling {
            Spelling::ByteLevel => match byte_level(text) {
                Some(bytes) => self.bytes.extend(bytes),
                None => self.bytes.extend_from_slice(text.as_bytes()),
            },
            Spelling::Metaspace => match byte_token(text) {
                Some(byte) => self.bytes.push(byte),
                None => self.bytes.extend_from_slice(text.replace('\u{2581}', " ").as_bytes()),
            },
            Spelling::Literal => self.bytes.extend_from_slice(text.as_bytes()),
        }
        self.ends.push(self.bytes.len());
        self.kinds.push(kind);
    }

    /// V
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Bytes and kind of `id`.
    pub fn get(&self, id: u32) -> Result<(&[u8], PieceKind), TokenError> {
        let missing = || TokenError::NoSuchToken { id, vocab_size: self.len() };
        let i = usize::try_from(id).map_err(|_| missing())?;
        let kind = *self.kinds.get(i).ok_or_else(missing)?;
        let end = *self.ends.get(i).ok_or_else(missing)?;
        let start = i.checked_sub(1).and_then(|before| self.ends.get(before)).copied().unwrap_or(0);
        Ok((self.bytes.get(start..end).ok_or_else(missing)?, kind))
    }
}

/// The byte of a token like `<0x0A>`.
pub(super) fn byte_token(text: &str) -> Option<u8> {
    let hex = text.strip_prefix("<0x")?.strip_suffix('>')?;
    let is_hex = hex.len() == 2 && hex.bytes().all(|b| b.is_ascii_hexdigit());
    is_hex.then(|| u8::from_str_radix(hex, 16).ok()).flatten()
}

/// Bytes of a byte-level token; None if a character encodes no byte.
fn byte_level(text: &str) -> Option<Vec<u8>> {
    text.chars().map(byte_of_char).collect()
}

fn byte_of_char(c: char) -> Option<u8> {
    let code = u32::from(c);
    match code {
        0x21..=0x7E | 0xA1..=0xAC | 0xAE..=0xFF => u8::try_from(code).ok(),
        // The remaining bytes follow in order from U+0100: 0..=0x20, 0x7F..=0xA0, 0xAD.
        0x100..=0x120 => u8::try_from(code - 0x100).ok(),
        0x121..=0x142 => u8::try_from(code - 0x121 + 0x7F).ok(),
        0x143 => Some(0xAD),
        _ => None,
    }
}

/// The character of `byte` in a byte-level vocabulary.
#[cfg(test)]
pub(super) fn char_of_byte(byte: u8) -> char {
    ('\u{21}'..='\u{143}').find(|&c| byte_of_char(c) == Some(byte)).unwrap_or('?')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn byte_level_alphabet_covers_every_byte_once() {
        let mut chars: Vec<char> = (0..=255).map(char_of_byte).collect();
        assert_eq!(chars[usize::from(b' ')], 'Ġ');
        assert_eq!(chars[usize::from(b'\n')], 'Ċ');
        chars.sort_unstable();
        chars.dedup();
        assert_eq!(chars.len(), 256);
        let crate_alphabet = tokenizers::pre_tokenizers::byte_level::ByteLevel::alphabet();
        assert!(chars.iter().all(|c| crate_alphabet.contains(c)));
    }

    #[test]
    fn pieces_spellings_become_bytes() {
        let mut pieces = Pieces::default();
        pieces.push("Ġhello", Spelling::ByteLevel, PieceKind::Text);
        pieces.push("\u{2581}ab\u{2581}", Spelling::Metaspace, PieceKind::Text);
        pieces.push("<0xE2>", Spelling::Metaspace, PieceKind::Text);
        pieces.push("<|im_end|>", Spelling::Literal, PieceKind::Control);
        assert_eq!(pieces.get(0).unwrap(), (b" hello".as_slice(), PieceKind::Text));
        assert_eq!(pieces.get(1).unwrap().0, b" ab ");
        assert_eq!(pieces.get(2).unwrap().0, [0xE2]);
        assert_eq!(pieces.get(3).unwrap(), (b"<|im_end|>".as_slice(), PieceKind::Control));
        assert!(pieces.get(4).unwrap_err().to_string().contains("token id 4 does not exist"));
    }

    #[test]
    fn byte_token_only_two_hex_digits() {
        assert_eq!(byte_token("<0x0A>"), Some(10));
        for not in ["<0xA>", "<0x00A>", "<0xZZ>", "0x0A", "<0x+1>"] {
            assert_eq!(byte_token(not), None, "{not}");
        }
    }
}
