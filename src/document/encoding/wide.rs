//! UTF-16 and UTF-32, known by their byte order mark or, without one, by statistics.
//!
//! ```text
//! bytes ──► units of 2 or 4 bytes in both orders ──► shares of likely units ──► Wide
//! ```
//! Invariant: text of one-byte and multi-byte encodings is not taken for UTF-16: NULs, controls or kana decide.
//! Limits: statistics read [`SAMPLE_BYTES`]. Source: Unicode §3.10 (encoding schemes).

use encoding_rs::{UTF_16BE, UTF_16LE};

/// Bytes that the statistics read.
const SAMPLE_BYTES: usize = 64 << 10;
/// Smallest sample that statistics decide on, units.
const MIN_UNITS: usize = 4;
/// Smallest share of units in blocks that texts use.
const MIN_LIKELY: f64 = 0.95;
/// Smallest share of units of alphabets in a text of letters.
const MIN_ALPHABET: f64 = 0.7;
/// Smallest share of spaces, punctuation and kana in a text of ideographs.
const MIN_COMMON: f64 = 0.03;

/// A Unicode encoding with units of two or four bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wide {
    Utf16Le,
    Utf16Be,
    Utf32Le,
    Utf32Be,
}

impl Wide {
    /// Encoding by the byte order mark, and the bytes after it. The mark of UTF-32 begins with that of UTF-16.
    pub fn by_bom(bytes: &[u8]) -> Option<(Wide, &[u8])> {
        const MARKS: [(Wide, &[u8]); 4] = [
            (Wide::Utf32Le, b"\xFF\xFE\0\0"),
            (Wide::Utf32Be, b"\0\0\xFE\xFF"),
            (Wide::Utf16Le, b"\xFF\xFE"),
            (Wide::Utf16Be, b"\xFE\xFF"),
        ];
        MARKS.iter().find_map(|(wide, mark)| Some((*wide, bytes.strip_prefix(*mark)?)))
    }

    /// Encoding without a byte order mark. Bytes that are UTF-8 too may be letters of an alphabet, but no ideographs.
    pub fn by_statistics(bytes: &[u8], is_utf8: bool) -> Option<Wide> {
        let sample = bytes.get(..SAMPLE_BYTES).unwrap_or(bytes);
        let utf32 = [Wide::Utf32Le, Wide::Utf32Be].into_iter().find(|wide| wide.is_likely_utf32(sample));
        if utf32.is_some() || sample.len() < 2 * MIN_UNITS {
            return utf32;
        }
        let likely = |wide: Wide| Some((wide, Shares::of(sample, wide))).filter(|(_, shares)| shares.likely >= MIN_LIKELY);
        let (little, big) = (likely(Wide::Utf16Le), likely(Wide::Utf16Be));
        let by_alphabet = |(_, shares): &(Wide, Shares)| shares.alphabet;
        let best = little.into_iter().chain(big).max_by(|a, b| by_alphabet(a).total_cmp(&by_alphabet(b)));
        best.filter(|(_, shares)| shares.alphabet >= MIN_ALPHABET || (!is_utf8 && shares.are_ideographs())).map(|(wide, _)| wide)
    }

    fn is_likely_utf32(self, sample: &[u8]) -> bool {
        let units = sample.chunks_exact(4);
        let n = units.len();
        let n_valid = units.filter_map(|unit| self.scalar(unit)).filter(|c| *c != '\0').count();
        n > 0 && n_valid * 50 >= n * 49 && sample.contains(&0)
    }

    fn scalar(self, unit: &[u8]) -> Option<char> {
        let bytes: [u8; 4] = unit.try_into().ok()?;
        char::from_u32(if self == Wide::Utf32Le { u32::from_le_bytes(bytes) } else { u32::from_be_bytes(bytes) })
    }

    /// Text, and the number of units that are no letters, each of which is U+FFFD in it.
    pub fn decode(self, bytes: &[u8]) -> (String, usize) {
        let utf16 = match self {
            Wide::Utf16Le => UTF_16LE,
            Wide::Utf16Be => UTF_16BE,
            Wide::Utf32Le | Wide::Utf32Be => {
                let scalars: Vec<Option<char>> = bytes.chunks(4).map(|unit| self.scalar(unit)).collect();
                let n_bad = scalars.iter().filter(|c| c.is_none()).count();
                return (scalars.into_iter().map(|c| c.unwrap_or('\u{FFFD}')).collect(), n_bad);
            }
        };
        let (text, had_errors) = utf16.decode_without_bom_handling(bytes);
        let n_bad = if had_errors { text.matches('\u{FFFD}').count() } else { 0 };
        (text.into_owned(), n_bad)
    }

    /// Name of the encoding.
    pub fn name(self) -> &'static str {
        match self {
            Wide::Utf16Le => "UTF-16LE",
            Wide::Utf16Be => "UTF-16BE",
            Wide::Utf32Le => "UTF-32LE",
            Wide::Utf32Be => "UTF-32BE",
        }
    }
}

/// Shares of kinds of units in a sample read as UTF-16.
struct Shares {
    /// in blocks that texts use
    likely: f64,
    /// letters, spaces and punctuation of alphabets, and kana
    alphabet: f64,
    /// spaces, punctuation and kana of texts with ideographs
    common: f64,
    /// Hangul, which bytes of Chinese encodings resemble
    hangul: f64,
    /// units below U+0100
    latin: f64,
}

impl Shares {
    fn of(sample: &[u8], wide: Wide) -> Shares {
        let unit = |pair: [u8; 2]| if wide == Wide::Utf16Le { u16::from_le_bytes(pair) } else { u16::from_be_bytes(pair) };
        let units: Vec<u16> = sample.as_chunks().0.iter().map(|pair| unit(*pair)).collect();
        let share = |is: fn(u16) -> bool| units.iter().filter(|u| is(**u)).count() as f64 / units.len().max(1) as f64;
        Shares {
            likely: share(|u| is_alphabet(u) || is_ideograph(u) || is_hangul(u) || is_sign(u)),
            alphabet: share(is_alphabet),
            common: share(|u| matches!(u, 9 | 10 | 13 | 0x20..=0x7E | 0x3000..=0x30FF | 0xFF00..=0xFF1F)),
            hangul: share(is_hangul),
            latin: share(|u| u < 0x100),
        }
    }

    /// True for Chinese, Japanese or Korean: ideographs among spaces, line ends, punctuation or kana.
    fn are_ideographs(&self) -> bool {
        self.common >= MIN_COMMON && (self.latin > 0.0 || self.hangul == 0.0)
    }
}

fn is_alphabet(unit: u16) -> bool {
    matches!(unit, 9 | 10 | 12 | 13 | 0x20..=0x7E | 0xA0..=0x6FF | 0x900..=0x137F | 0x1780..=0x17FF | 0x1E00..=0x1FFF | 0x2010..=0x2027 | 0x3000..=0x30FF)
}

fn is_ideograph(unit: u16) -> bool {
    matches!(unit, 0x4E00..=0x9FFF | 0xFF01..=0xFFEE)
}

fn is_hangul(unit: u16) -> bool {
    matches!(unit, 0xAC00..=0xD7A3)
}

/// Arrows, currencies, mathematics, shapes, and the halves of rarer letters.
fn is_sign(unit: u16) -> bool {
    matches!(unit, 0x2028..=0x206F | 0x20A0..=0x20BF | 0x2100..=0x27BF | 0xD83C..=0xD83E | 0xDC00..=0xDFFF)
}

#[cfg(test)]
mod tests {
    use super::Wide;

    const TEXTS: [&str; 10] = [
        "The mill.\n",
        "The upper mill belonged to three brothers.\nIn spring the water rose.\n",
        "Все счастливые семьи похожи друг на друга, каждая несчастливая семья несчастлива по-своему.\n",
        "Η πάνω γέφυρα χτίστηκε από πέτρα.\n",
        "كانت الطاحونة العليا لثلاثة إخوة\n",
        "ម៉ាស៊ីនកិនស្រូវចាស់នៅមាត់ទន្លេ បងប្អូនបីនាក់ថែទាំវា\n",
        "โรงสีเก่าอยู่ริมน้ำ และพี่น้องสามคนดูแลมัน\n",
        "吾輩は猫である。名前はまだ無い。どこで生れたかとんと見当がつかぬ。",
        "道可道，非常道。名可名，非常名。无名天地之始；有名万物之母。\n",
        "위쪽 물방앗간은 세 형제의 것이었다. 봄이면 물이 불었다.\n",
    ];

    fn encoded(text: &str, wide: Wide) -> Vec<u8> {
        match wide {
            Wide::Utf16Le => text.encode_utf16().flat_map(u16::to_le_bytes).collect(),
            Wide::Utf16Be => text.encode_utf16().flat_map(u16::to_be_bytes).collect(),
            Wide::Utf32Le => text.chars().flat_map(|c| u32::from(c).to_le_bytes()).collect(),
            Wide::Utf32Be => text.chars().flat_map(|c| u32::from(c).to_be_bytes()).collect(),
        }
    }

    #[test]
    fn encoding_without_a_mark_is_known_by_statistics() {
        for text in TEXTS {
            for wide in [Wide::Utf16Le, Wide::Utf16Be, Wide::Utf32Le, Wide::Utf32Be] {
                let bytes = encoded(text, wide);
                assert_eq!(Wide::by_statistics(&bytes, std::str::from_utf8(&bytes).is_ok()), Some(wide), "{text}");
                assert_eq!(wide.decode(&bytes), (text.to_owned(), 0));
            }
        }
    }

    #[test]
    fn other_encodings_are_not_taken_for_it() {
        for text in TEXTS {
            for label in
                ["windows-1252", "windows-1251", "windows-1253", "shift_jis", "gbk", "big5", "euc-jp", "euc-kr", "windows-874"]
            {
                let (bytes, _, unmappable) = encoding_rs::Encoding::for_label(label.as_bytes()).unwrap().encode(text);
                if !unmappable && std::str::from_utf8(&bytes).is_err() {
                    assert_eq!(Wide::by_statistics(&bytes, false), None, "{label}: {text}");
                }
            }
        }
        let halves = Wide::Utf16Le.decode(&[0x61, 0, 0, 0xD8, 0x62, 0, 0x63]);
        assert_eq!(halves, ("a\u{FFFD}b\u{FFFD}".to_owned(), 2));
        assert_eq!(Wide::Utf32Le.decode(&[0x61, 0, 0, 0, 0, 0, 0, 0xFF, 0x62]), ("a\u{FFFD}\u{FFFD}".to_owned(), 2));
    }
}
