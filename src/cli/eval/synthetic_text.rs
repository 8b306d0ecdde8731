//! Synthetic text: prose and facts for documents of any length, the same for the same seed.
//!
//! ```text
//! seed ─► Rng ─► templates with {slots}, filled recursively ─► paragraphs of sentences
//!            └─► "The secret code of Somiko is Tave Ruloma." and the question that asks for it
//! ```
//! Invariants: 1. The slots form no cycle, so filling ends. 2. No sentence of the prose has a digit or begins like a fact.
//! 3. Facts have a form that the built-in model was trained on, with invented words as values: of ten facts in a document it
//! finds 9 or 10, but of ten numbers only 3 or 4. So a wrong answer is evidence against the policy.

use std::collections::HashMap;

use crate::base::Rng;

/// Fewest sentences of a paragraph, and largest number of further ones.
const PARAGRAPH_SENTENCES: u32 = 4;

const SENTENCES: [&str; 18] = [
    "{When}, {who} walked from {place} to {place}, and {weather}.",
    "Nobody in {place} had expected that {thing} would {happen} so soon.",
    "{who} wrote to {who} that {thing} near {place} looked {quality} and rather {quality}.",
    "Beside {thing} stood {thing}, {quality} as ever, and {someone} was {doing} there until {weather}.",
    "It was {who} who had first spoken of {thing}, though {someone} claimed to have {done} it long before.",
    "{When} they came to {place}, where {someone} kept {thing} behind {thing}.",
    "“You may {act} if you like,” said {who}, “but {thing} will still {happen}.”",
    "Some people in {place} preferred to {act}; others, {doing} all morning, said that {weather}.",
    "After that, {weather}, and {who} decided to {act} before {someone} could ask about {thing}.",
    "A {quality} letter from {place} explained how {thing} had been {done} by {someone}.",
    "Why {who} should {act} at such an hour, not even {someone} could tell.",
    "There were evenings when {weather} and the whole of {place} seemed {quality}, as if {thing} were about to {happen}.",
    "{who} laughed, put down {thing}, and went on {doing} as though nothing had changed.",
    "Between {place} and {place} the road was {quality}, and {who} did not wish to {act} alone.",
    "{When}, {someone} found {thing} where {who} had left it, {quality} and half {done}.",
    "Years went by; {thing} was {done} and forgotten, and {who} moved to {place}.",
    "If {weather}, then {someone} would {act}, and {who} would sit by {thing} and listen.",
    "In {place} the habit of {doing} is older than {thing}, or so {someone} believed.",
];
/// Slots of templates, with the texts that can fill them.
const SLOTS: [(&str, &[&str]); 11] = [
    (
        "When",
        &[
            "On a grey morning",
            "Late in the summer",
            "Before the bells had stopped",
            "Some weeks afterwards",
            "In the second week of the harvest",
            "Towards evening",
            "As soon as the ice was gone",
            "That same winter",
            "Early on market day",
            "When the lamps were lit",
        ],
    ),
    (
        "who",
        &[
            "Martha",
            "old Edwin",
            "Clara",
            "Mr. Hale",
            "the elder Ruth",
            "Jonas",
            "Beatrice",
            "Captain Orme",
            "Agnes",
            "Tobias",
            "Mrs. Lindley",
            "Walter",
            "Eleanor",
            "young Piers",
            "Judith",
            "Doctor Finch",
        ],
    ),
    (
        "someone",
        &[
            "the miller",
            "a travelling clerk",
            "her brother",
            "one of the carpenters",
            "the schoolmaster",
            "a neighbour",
            "the ferryman",
            "an aunt of {who}",
            "the night watchman",
            "two of the apprentices",
            "the gardener",
            "a stranger",
        ],
    ),
    (
        "place",
        &[
            "the lower village",
            "Aldermoor",
            "the harbour",
            "the orchard",
            "Wexcombe",
            "the north valley",
            "the market square",
            "Saint Oswin",
            "the old mill",
            "Thornby",
            "the river bank",
            "Carrow Hill",
            "the upper farm",
            "Pendle Cross",
        ],
    ),
    (
        "thing",
        &[
            "the copper kettle",
            "a row of beehives",
            "the broken clock",
            "the stone bridge",
            "a basket of pears",
            "the ledger",
            "the green door",
            "a pile of wet rope",
            "the chapel roof",
            "an empty cart",
            "the long table",
            "the weather vane",
            "a painted chest",
            "the garden wall",
            "the {quality} piano",
            "the lantern",
        ],
    ),
    (
        "happen",
        &["fall apart", "be sold", "be missed", "come to light", "turn out well", "be mended", "outlast them all", "matter"],
    ),
    (
        "quality",
        &[
            "narrow",
            "cheerful",
            "half-forgotten",
            "heavy",
            "plain",
            "crooked",
            "silent",
            "well kept",
            "curious",
            "dusty",
            "unusually bright",
            "cold",
            "modest",
            "strange",
        ],
    ),
    (
        "weather",
        &[
            "the rain came down in sheets",
            "a light wind rose from the sea",
            "the frost held",
            "it was too warm to work",
            "the fog hid everything beyond {thing}",
            "the sky cleared at last",
            "snow lay on the fields",
            "the swallows were back",
            "the wind dropped",
            "thunder rolled over {place}",
        ],
    ),
    (
        "act",
        &[
            "wait for the ferry",
            "count the sheep again",
            "carry {thing} home",
            "read aloud",
            "write to {who}",
            "shut the gate",
            "sleep in the barn",
            "ask for credit",
            "climb up to {place}",
            "begin all over again",
            "keep the accounts",
        ],
    ),
    (
        "doing",
        &[
            "mending nets",
            "singing",
            "quarrelling with {who}",
            "picking apples",
            "talking about {thing}",
            "sharpening knives",
            "waiting",
            "looking over towards {place}",
            "writing things down",
            "playing cards",
        ],
    ),
    ("done", &["repaired", "painted over", "hidden", "carried away", "measured", "sold twice", "promised to {who}", "admired"]),
];

const ADJECTIVES: [&str; 14] = [
    "secret",
    "annual",
    "total",
    "final",
    "maximum",
    "minimum",
    "current",
    "official",
    "registered",
    "monthly",
    "hidden",
    "special",
    "original",
    "main",
];
const NOUNS: [&str; 5] = ["code", "password", "id", "reference", "number"];
const SYLLABLES: [&str; 45] = [
    "ba", "be", "bi", "bo", "ka", "ke", "ko", "la", "le", "li", "lo", "ma", "me", "mi", "mo", "na", "ne", "no", "ra", "re", "ri",
    "ro", "sa", "se", "so", "ta", "te", "to", "va", "ve", "vi", "zu", "du", "fu", "gu", "ku", "lu", "mu", "pu", "da", "de", "do",
    "fa", "fi", "ga",
];

/// Largest number of facts of one document, of three words each.
pub const MAX_FACTS: usize = SYLLABLES.len() * (SYLLABLES.len() - 1) / 3;

/// A fact that a document states once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fact {
    /// sentence to plant
    pub sentence: String,
    /// question about the fact
    pub question: String,
    /// value that a right answer must have
    pub value: String,
}

/// A paragraph of synthetic prose, sentence by sentence.
pub fn paragraph(rng: &mut Rng) -> Vec<String> {
    let n = PARAGRAPH_SENTENCES + rng.uniform(PARAGRAPH_SENTENCES);
    (0..n).map(|_| capitalized(&fill(pick(rng, &SENTENCES), rng))).collect()
}

/// `n` facts, at most [`MAX_FACTS`]. No two words of their names and values begin alike. Of about ten facts in a row, all
/// values differ in their initial and all names in their last syllable, so that facts are hard to confuse. Kinds of facts
/// repeat only after all were used.
pub fn facts(n: usize, rng: &mut Rng) -> Vec<Fact> {
    let mut stems = pairs(&SYLLABLES, &SYLLABLES, "");
    stems.retain(|stem| stem.get(..2) != stem.get(2..));
    let stems = dealt(shuffled(stems, rng), |stem| stem.get(..1));
    let mut values: Vec<String> = stems.iter().map(|stem| word(stem, rng)).collect();
    let names = dealt(values.split_off(2 * MAX_FACTS), |name| name.get(name.len().saturating_sub(2)..));
    let (first, second) = values.split_at(MAX_FACTS);
    let kinds = shuffled(pairs(&ADJECTIVES, &NOUNS, " "), rng);
    let facts = first.iter().zip(second).zip(names).zip(kinds.iter().cycle()).map(|(((first, second), name), kind)| Fact {
        sentence: format!("The {kind} of {name} is {first} {second}."),
        question: format!("What is the {kind} of {name}?"),
        value: format!("{first} {second}"),
    });
    facts.take(n).collect()
}

/// Reorders words into rounds with one word per key; the order is kept otherwise.
fn dealt(words: Vec<String>, key: impl Fn(&str) -> Option<&str>) -> Vec<String> {
    let mut n_dealt: HashMap<Option<String>, usize> = HashMap::new();
    let mut rounds: Vec<(usize, String)> = Vec::new();
    for word in words {
        let round = n_dealt.entry(key(&word).map(str::to_owned)).or_default();
        rounds.push((*round, word));
        *round += 1;
    }
    rounds.sort_by_key(|(round, _)| *round);
    rounds.into_iter().map(|(_, word)| word).collect()
}

/// All pairs of a first and a second.
fn pairs(first: &[&str], second: &[&str], between: &str) -> Vec<String> {
    first.iter().flat_map(|a| second.iter().map(move |b| format!("{a}{between}{b}"))).collect()
}

/// Shuffles a list (Fisher-Yates).
fn shuffled(mut things: Vec<String>, rng: &mut Rng) -> Vec<String> {
    for (i, n_left) in (1..=things.len()).rev().zip((1..=things.len() as u32).rev()) {
        things.swap(i - 1, rng.uniform(n_left) as usize);
    }
    things
}

/// Fills every slot of a template.
fn fill(template: &str, rng: &mut Rng) -> String {
    let (mut text, mut rest) = (String::new(), template);
    while let Some((before, from_slot)) = rest.split_once('{') {
        let (slot, after) = from_slot.split_once('}').unwrap_or((from_slot, ""));
        let choices = SLOTS.iter().find(|(name, _)| *name == slot).map_or(&[][..], |(_, choices)| choices);
        text += before;
        text += &fill(pick(rng, choices), rng);
        rest = after;
    }
    text + rest
}

fn capitalized(text: &str) -> String {
    let mut chars = text.chars();
    chars.next().map(|c| c.to_uppercase().chain(chars).collect()).unwrap_or_default()
}

/// An invented word with a capital, of two or three distinct syllables.
fn word(stem: &str, rng: &mut Rng) -> String {
    let more = pick(rng, &SYLLABLES);
    capitalized(&if rng.uniform(2) == 0 || stem.contains(more) { stem.to_owned() } else { format!("{stem}{more}") })
}

/// A random choice; empty if there is none.
fn pick<'t>(rng: &mut Rng, choices: &[&'t str]) -> &'t str {
    let n = u32::try_from(choices.len()).unwrap_or(u32::MAX);
    choices.get(rng.uniform(n) as usize).copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn prose_same_seed_repeats_and_every_slot_is_filled() {
        let text = |seed| {
            let mut rng = Rng::new(seed);
            (0..200).flat_map(|_| paragraph(&mut rng)).collect::<Vec<_>>()
        };
        let (first, second) = (text(1), text(2));
        assert_eq!(first, text(1));
        assert_ne!(first, second);
        for sentence in &first {
            assert!(!sentence.contains(['{', '}']) && !sentence.contains("  "), "{sentence}");
            assert!(!sentence.contains(|c: char| c.is_ascii_digit()), "{sentence}");
            assert!(sentence.starts_with(|c: char| c.is_uppercase() || c == '“'), "{sentence}");
        }
        let distinct: HashSet<_> = first.iter().collect();
        assert!(distinct.len() * 100 > first.len() * 95, "{} of {} sentences differ", distinct.len(), first.len());
    }

    #[test]
    fn prose_slots_have_choices_and_are_all_used() {
        let slots_in = |template: &str| -> Vec<String> {
            template.split('{').skip(1).map(|part| part.split('}').next().unwrap().to_owned()).collect()
        };
        let templates = SENTENCES.iter().copied().chain(SLOTS.iter().flat_map(|(_, choices)| choices.iter().copied()));
        let named: HashSet<String> = templates.flat_map(slots_in).collect();
        let known: HashSet<String> = SLOTS.iter().map(|(name, _)| (*name).to_owned()).collect();
        assert_eq!(named, known);
    }

    #[test]
    fn facts_have_words_that_begin_unlike_all_others_and_answer_their_question() {
        let facts = facts(MAX_FACTS, &mut Rng::new(3));
        assert_eq!(facts.len(), MAX_FACTS);
        let mut stems = HashSet::new();
        for fact in &facts {
            let asked = fact.question.trim_start_matches("What is the ").trim_end_matches('?');
            assert_eq!(fact.sentence, format!("The {asked} is {}.", fact.value));
            let name = asked.rsplit(' ').next().unwrap();
            for word in fact.value.split(' ').chain([name]) {
                assert!(stems.insert(word[..4].to_owned()), "{word} begins as another word does");
            }
        }
        let kinds: HashSet<_> = facts[..70].iter().map(|f| f.question.rsplit_once(" of ").unwrap().0).collect();
        assert_eq!(kinds.len(), 70);
        let initials: HashSet<_> = facts[..12].iter().map(|f| f.value.chars().next()).collect();
        let endings: HashSet<_> = facts[..12].iter().map(|f| f.question[f.question.len() - 3..].to_owned()).collect();
        assert_eq!((initials.len(), endings.len()), (12, 12));
        assert_eq!(super::facts(5, &mut Rng::new(3)), facts[..5]);
    }
}
