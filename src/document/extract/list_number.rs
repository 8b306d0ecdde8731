//! Numbers of lists as Word and browsers show them.
//!
//! ```text
//! 4, upperRoman ──► IV      28, lowerLetter ──► bb or ab      3, aiueo ──► ウ
//! ```
//! Source: ECMA-376, part 1, 17.18.59 (ST_NumberFormat); CSS Counter Styles Level 3, 6. Unknown formats are decimal.

/// Way to write a number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum NumberFormat {
    /// 1, 2, 3
    #[default]
    Decimal,
    /// decimal with leading zeros, at least this many digits
    Zeros(usize),
    /// I, II
    UpperRoman,
    /// i, ii
    LowerRoman,
    /// A, B, AA, BB: letters are repeated
    UpperLetter,
    /// a, b, aa, bb: letters are repeated
    LowerLetter,
    /// A, B, AA, AB
    UpperAlpha,
    /// a, b, aa, ab
    LowerAlpha,
    /// 1st, 2nd
    Ordinal,
    /// One, Two
    CardinalText,
    /// First, Second
    OrdinalText,
    /// - 1 -
    InDash,
    /// 0A
    Hex,
    /// full-width digits
    FullWidth,
    /// digits, tens and hundreds as in Chinese: the signs of 1 to 10, of 100 and of 0
    Counting(&'static str),
    /// these digits, from 0, in a row
    Digits(&'static str),
    /// letters with values, as in dates of the Hebrew calendar
    Hebrew,
    /// one of these signs, and then decimal
    Signs(&'static str),
    /// a sign without number
    Bullet,
    /// nothing
    None,
}

const GREEK: &str = "αβγδεζηθικλμνξοπρστυφχψω";
const RUSSIAN_LOWER: &str = "абвгдежзиклмнопрстуфхцчшщыэюя";
const RUSSIAN_UPPER: &str = "АБВГДЕЖЗИКЛМНОПРСТУФХЦЧШЩЫЭЮЯ";
const AIUEO: &str = "アイウエオカキクケコサシスセソタチツテトナニヌネノハヒフヘホマミムメモヤユヨラリルレロワヲン";
const IROHA: &str = "イロハニホヘトチリヌルヲワカヨタレソツネナラムウヰノオクヤマケフコエテアサキユメミシヱヒモセスン";
const GANADA: &str = "가나다라마바사아자차카타파하";
const STEMS: &str = "甲乙丙丁戊己庚辛壬癸";
const BRANCHES: &str = "子丑寅卯辰巳午未申酉戌亥";
const CIRCLED: &str = "①②③④⑤⑥⑦⑧⑨⑩⑪⑫⑬⑭⑮⑯⑰⑱⑲⑳";
const WITH_STOP: &str = "⒈⒉⒊⒋⒌⒍⒎⒏⒐⒑⒒⒓⒔⒕⒖⒗⒘⒙⒚⒛";
const IN_PARENTHESES: &str = "⑴⑵⑶⑷⑸⑹⑺⑻⑼⑽⑾⑿⒀⒁⒂⒃⒄⒅⒆⒇";
const HEBREW: &str = "אבגדהוזחטיכלמנסעפצקרשת";
const ARABIC: &str = "أبتثجحخدذرزسشصضطظعغفقكلمنهوي";
const ABJAD: &str = "أبجدهوزحطيكلمنسعفصقرشتثخذضظغ";
const THAI: &str = "กขคงจฉชซฌญฎฏฐฑฒณดตถทธนบปผฝพฟภมยรลวศษสหฬอฮ";
const CHICAGO: &str = "*†‡§";

const CHINESE_DIGITS: &str = "〇一二三四五六七八九";
const KOREAN_DIGITS: &str = "영일이삼사오육칠팔구";
const HINDI_DIGITS: &str = "०१२३४५६७८९";
const THAI_DIGITS: &str = "๐๑๒๓๔๕๖๗๘๙";

const CHINESE: &str = "一二三四五六七八九十百〇";
const KOREAN: &str = "일이삼사오육칠팔구십백";
const JAPANESE_LEGAL: &str = "壱弐参四伍六七八九拾百";
const SIMPLIFIED_LEGAL: &str = "壹贰叁肆伍陆柒捌玖拾佰零";
const TRADITIONAL_LEGAL: &str = "壹貳參肆伍陸柒捌玖拾佰零";

impl NumberFormat {
    /// Format with a name of Word.
    pub fn of_word(name: &str) -> NumberFormat {
        match name {
            "decimalZero" => NumberFormat::Zeros(2),
            "upperRoman" => NumberFormat::UpperRoman,
            "lowerRoman" => NumberFormat::LowerRoman,
            "upperLetter" => NumberFormat::UpperLetter,
            "lowerLetter" => NumberFormat::LowerLetter,
            "ordinal" => NumberFormat::Ordinal,
            "cardinalText" => NumberFormat::CardinalText,
            "ordinalText" => NumberFormat::OrdinalText,
            "numberInDash" => NumberFormat::InDash,
            "hex" => NumberFormat::Hex,
            "decimalFullWidth" | "decimalFullWidth2" => NumberFormat::FullWidth,
            "japaneseCounting"
            | "chineseCounting"
            | "chineseCountingThousand"
            | "taiwaneseCounting"
            | "taiwaneseCountingThousand" => NumberFormat::Counting(CHINESE),
            "koreanCounting" => NumberFormat::Counting(KOREAN),
            "japaneseLegal" => NumberFormat::Counting(JAPANESE_LEGAL),
            "chineseLegalSimplified" => NumberFormat::Counting(SIMPLIFIED_LEGAL),
            "ideographLegalTraditional" => NumberFormat::Counting(TRADITIONAL_LEGAL),
            "ideographDigital" | "japaneseDigitalTenThousand" | "taiwaneseDigital" | "koreanDigital2" => {
                NumberFormat::Digits(CHINESE_DIGITS)
            }
            "koreanDigital" => NumberFormat::Digits(KOREAN_DIGITS),
            "hindiNumbers" => NumberFormat::Digits(HINDI_DIGITS),
            "thaiNumbers" => NumberFormat::Digits(THAI_DIGITS),
            "hebrew1" => NumberFormat::Hebrew,
            "arabicAbjad" => NumberFormat::Signs(ABJAD),
            "thaiLetters" => NumberFormat::Signs(THAI),
            "decimalEnclosedCircle" | "decimalEnclosedCircleChinese" => NumberFormat::Signs(CIRCLED),
            "decimalEnclosedFullstop" => NumberFormat::Signs(WITH_STOP),
            "decimalEnclosedParen" => NumberFormat::Signs(IN_PARENTHESES),
            "aiueo" | "aiueoFullWidth" => NumberFormat::Signs(AIUEO),
            "iroha" | "irohaFullWidth" => NumberFormat::Signs(IROHA),
            "ganada" => NumberFormat::Signs(GANADA),
            "ideographTraditional" => NumberFormat::Signs(STEMS),
            "ideographZodiac" => NumberFormat::Signs(BRANCHES),
            "russianLower" => NumberFormat::Signs(RUSSIAN_LOWER),
            "russianUpper" => NumberFormat::Signs(RUSSIAN_UPPER),
            "hebrew2" => NumberFormat::Signs(HEBREW),
            "arabicAlpha" => NumberFormat::Signs(ARABIC),
            "chicago" => NumberFormat::Signs(CHICAGO),
            "bullet" => NumberFormat::Bullet,
            "none" => NumberFormat::None,
            _ => NumberFormat::Decimal,
        }
    }

    /// Format of `type` in an ordered list, or of `list-style-type`.
    pub fn of_html(name: &str) -> Option<NumberFormat> {
        Some(match name {
            "1" | "decimal" => NumberFormat::Decimal,
            "a" | "lower-alpha" | "lower-latin" => NumberFormat::LowerAlpha,
            "A" | "upper-alpha" | "upper-latin" => NumberFormat::UpperAlpha,
            "i" | "lower-roman" => NumberFormat::LowerRoman,
            "I" | "upper-roman" => NumberFormat::UpperRoman,
            "decimal-leading-zero" => NumberFormat::Zeros(2),
            "lower-greek" => NumberFormat::Signs(GREEK),
            "katakana" => NumberFormat::Signs(AIUEO),
            "katakana-iroha" => NumberFormat::Signs(IROHA),
            "hangul" => NumberFormat::Signs(GANADA),
            "cjk-heavenly-stem" => NumberFormat::Signs(STEMS),
            "cjk-earthly-branch" => NumberFormat::Signs(BRANCHES),
            "cjk-ideographic" | "simp-chinese-informal" | "trad-chinese-informal" | "japanese-informal" => {
                NumberFormat::Counting(CHINESE)
            }
            "cjk-decimal" => NumberFormat::Digits(CHINESE_DIGITS),
            "hebrew" => NumberFormat::Hebrew,
            "devanagari" => NumberFormat::Digits(HINDI_DIGITS),
            "thai" => NumberFormat::Digits(THAI_DIGITS),
            "none" => NumberFormat::None,
            "disc" | "circle" | "square" | "disclosure-open" | "disclosure-closed" => NumberFormat::Bullet,
            _ => return None,
        })
    }

    /// A number in this format.
    pub fn write(self, n: i64) -> String {
        let decimal = || n.to_string();
        let above_zero = usize::try_from(n).ok().filter(|n| *n > 0);
        let Some(count) = above_zero else {
            return if matches!(self, NumberFormat::Bullet | NumberFormat::None) { String::new() } else { decimal() };
        };
        match self {
            NumberFormat::Decimal => decimal(),
            NumberFormat::Zeros(width) => format!("{n:0width$}"),
            NumberFormat::UpperRoman => roman(count).unwrap_or_else(decimal),
            NumberFormat::LowerRoman => roman(count).map_or_else(decimal, |roman| roman.to_lowercase()),
            NumberFormat::UpperLetter => repeated(count, b'A').unwrap_or_else(decimal),
            NumberFormat::LowerLetter => repeated(count, b'a').unwrap_or_else(decimal),
            NumberFormat::UpperAlpha => positional(count, b'A'),
            NumberFormat::LowerAlpha => positional(count, b'a'),
            NumberFormat::Ordinal => format!("{n}{}", ordinal_ending(count)),
            NumberFormat::CardinalText => in_words(count, false).unwrap_or_else(decimal),
            NumberFormat::OrdinalText => in_words(count, true).unwrap_or_else(decimal),
            NumberFormat::InDash => format!("- {n} -"),
            NumberFormat::Hex => format!("{n:X}"),
            NumberFormat::FullWidth => decimal().chars().filter_map(|c| char::from_u32(u32::from(c) + 0xFEE0)).collect(),
            NumberFormat::Counting(signs) => counting(count, signs).unwrap_or_else(decimal),
            NumberFormat::Digits(signs) => decimal().chars().filter_map(|c| nth(signs, c.to_digit(10)? as usize)).collect(),
            NumberFormat::Hebrew => hebrew(count).unwrap_or_else(decimal),
            NumberFormat::Signs(CHICAGO) => {
                let sign = nth(CHICAGO, (count - 1) % 4).map(String::from).unwrap_or_default();
                sign.repeat(((count - 1) / 4 + 1).min(4))
            }
            NumberFormat::Signs(signs) => nth(signs, count - 1).map_or_else(decimal, String::from),
            NumberFormat::Bullet | NumberFormat::None => String::new(),
        }
    }
}

fn nth(signs: &str, at: usize) -> Option<char> {
    signs.chars().nth(at)
}

fn roman(n: usize) -> Option<String> {
    const DIGITS: [(usize, &str); 13] = [
        (1000, "M"),
        (900, "CM"),
        (500, "D"),
        (400, "CD"),
        (100, "C"),
        (90, "XC"),
        (50, "L"),
        (40, "XL"),
        (10, "X"),
        (9, "IX"),
        (5, "V"),
        (4, "IV"),
        (1, "I"),
    ];
    let mut rest = Some(n).filter(|n| *n < 4000)?;
    let mut out = String::new();
    for (value, digits) in DIGITS {
        out.push_str(&digits.repeat(rest / value));
        rest %= value;
    }
    Some(out)
}

/// aa follows z, and then bb.
fn repeated(n: usize, first: u8) -> Option<String> {
    let letter = char::from(first + u8::try_from((n - 1) % 26).ok()?);
    Some(letter.to_string().repeat(Some((n - 1) / 26 + 1).filter(|times| *times <= 30)?))
}

/// aa follows z, and then ab.
fn positional(n: usize, first: u8) -> String {
    let (mut rest, mut letters) = (n, Vec::new());
    while rest > 0 {
        rest -= 1;
        letters.push(char::from(first + u8::try_from(rest % 26).unwrap_or_default()));
        rest /= 26;
    }
    letters.iter().rev().collect()
}

fn ordinal_ending(n: usize) -> &'static str {
    match (n % 100, n % 10) {
        (11..=13, _) => "th",
        (_, 1) => "st",
        (_, 2) => "nd",
        (_, 3) => "rd",
        _ => "th",
    }
}

fn in_words(n: usize, is_ordinal: bool) -> Option<String> {
    const SMALL: [(&str, &str); 20] = [
        ("zero", "zeroth"),
        ("one", "first"),
        ("two", "second"),
        ("three", "third"),
        ("four", "fourth"),
        ("five", "fifth"),
        ("six", "sixth"),
        ("seven", "seventh"),
        ("eight", "eighth"),
        ("nine", "ninth"),
        ("ten", "tenth"),
        ("eleven", "eleventh"),
        ("twelve", "twelfth"),
        ("thirteen", "thirteenth"),
        ("fourteen", "fourteenth"),
        ("fifteen", "fifteenth"),
        ("sixteen", "sixteenth"),
        ("seventeen", "seventeenth"),
        ("eighteen", "eighteenth"),
        ("nineteen", "nineteenth"),
    ];
    const TENS: [&str; 10] = ["", "", "twent", "thirt", "fort", "fift", "sixt", "sevent", "eight", "ninet"];
    let small = |n: usize| SMALL.get(n).map(|(cardinal, ordinal)| if is_ordinal { *ordinal } else { *cardinal });
    let words = match (n / 10, n % 10) {
        (0..=1, _) => small(n)?.to_owned(),
        (2..=9, 0) => format!("{}{}", TENS.get(n / 10)?, if is_ordinal { "ieth" } else { "y" }),
        (2..=9, ones) => format!("{}y-{}", TENS.get(n / 10)?, small(ones)?),
        _ => return None,
    };
    let mut letters = words.chars();
    let first = letters.next()?;
    Some(first.to_uppercase().chain(letters).collect())
}

fn counting(n: usize, signs: &str) -> Option<String> {
    let sign = |at: usize| nth(signs, at).map(String::from).unwrap_or_default();
    let digit = |n: usize| n.checked_sub(1).map(sign).unwrap_or_default();
    let tens = |n: usize| match n / 10 {
        0 => digit(n),
        1 => format!("{}{}", sign(9), digit(n % 10)),
        tens => format!("{}{}{}", digit(tens), sign(9), digit(n % 10)),
    };
    match n {
        0..=99 => Some(tens(n)),
        100..=999 => {
            let rest = n % 100;
            let zero = if (1..10).contains(&rest) { sign(11) } else { String::new() };
            let one = if (10..20).contains(&rest) { digit(1) } else { String::new() };
            Some(format!("{}{}{zero}{one}{}", digit(n / 100), sign(10), tens(rest)))
        }
        _ => None,
    }
}

/// Hundreds, tens and digits. 15 and 16 are nine and six or seven, as the others would spell a name of God.
fn hebrew(n: usize) -> Option<String> {
    const HUNDREDS: [&str; 10] = ["", "ק", "ר", "ש", "ת", "תק", "תר", "תש", "תת", "תתק"];
    let letter = |i: usize| nth(HEBREW, i).map(String::from).unwrap_or_default();
    let digit = |n: usize| n.checked_sub(1).map(letter).unwrap_or_default();
    let rest = match n % 100 {
        15 => "טו".to_owned(),
        16 => "טז".to_owned(),
        rest => format!("{}{}", (rest / 10).checked_sub(1).map(|tens| letter(tens + 9)).unwrap_or_default(), digit(rest % 10)),
    };
    Some(format!("{}{rest}", HUNDREDS.get(n / 100)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_written_as_programs_show_them() {
        for (name, n, expected) in [
            ("decimal", 12, "12"),
            ("decimalZero", 7, "07"),
            ("upperRoman", 1994, "MCMXCIV"),
            ("hebrew1", 15, "טו"),
            ("hebrew1", 123, "קכג"),
            ("arabicAbjad", 2, "ب"),
            ("thaiNumbers", 21, "๒๑"),
            ("thaiLetters", 2, "ข"),
            ("koreanCounting", 21, "이십일"),
            ("koreanDigital", 20, "이영"),
            ("japaneseLegal", 12, "拾弐"),
            ("chineseLegalSimplified", 105, "壹佰零伍"),
            ("lowerRoman", 4, "iv"),
            ("upperLetter", 27, "AA"),
            ("lowerLetter", 28, "bb"),
            ("ordinal", 22, "22nd"),
            ("ordinal", 112, "112th"),
            ("cardinalText", 42, "Forty-two"),
            ("ordinalText", 30, "Thirtieth"),
            ("ordinalText", 21, "Twenty-first"),
            ("numberInDash", 3, "- 3 -"),
            ("decimalFullWidth", 10, "１０"),
            ("japaneseCounting", 20, "二十"),
            ("chineseCounting", 115, "一百一十五"),
            ("ideographDigital", 20, "二〇"),
            ("decimalEnclosedCircle", 3, "③"),
            ("aiueo", 3, "ウ"),
            ("iroha", 2, "ロ"),
            ("ganada", 1, "가"),
            ("chicago", 6, "††"),
            ("russianLower", 3, "в"),
            ("bullet", 3, ""),
            ("no such format", 3, "3"),
            ("upperRoman", 0, "0"),
        ] {
            assert_eq!(NumberFormat::of_word(name).write(n), expected, "{name}");
        }
        for (name, n, expected) in
            [("a", 28, "ab"), ("A", 702, "ZZ"), ("lower-greek", 2, "β"), ("i", -2, "-2"), ("lower-roman", 4000, "4000")]
        {
            assert_eq!(NumberFormat::of_html(name).unwrap().write(n), expected, "{name}");
        }
    }
}
