//! Order of PDF text: right-to-left lines, words by gaps, columns, tables, powers.

use crate::make_files::read;
use crate::make_pdf::{Font, Pdf, visual, width};

/// Text of a page of some content.
fn page(texts: &[&str], content: impl Fn(&Font) -> String) -> String {
    let mut pdf = Pdf::default();
    let font = Font::of(&mut pdf, texts);
    pdf.page(&content(&font), font.number, "");
    read("a.pdf", &pdf.bytes()).unwrap().text
}

/// Lines that end at the right edge.
fn right_aligned(font: &Font, lines: &[String]) -> String {
    lines.iter().enumerate().map(|(i, line)| font.line(line, 380.0 - width(line, 12.0), 260.0 - 14.0 * i as f64, 12.0)).collect()
}

#[test]
fn right_to_left_lines_are_read_from_the_right() {
    for lines in [
        ["הגשר הישן נבנה מאבן בשנת 1742 בידי שני אחים", "ולידו עומדת טחנה (קטנה) עם 12 חלונות."],
        ["بني الجسر القديم من الحجر سنة 1742 على يد أخوين", "وبجانبه طاحونة صغيرة فيها 12 نافذة."],
    ] {
        let drawn = lines.map(visual).map(|line| line.replace('(', "\u{1}").replace(')', "(").replace('\u{1}', ")"));
        let text = page(&[&drawn[0], &drawn[1]], |font| right_aligned(font, &drawn));
        assert_eq!(text, lines.join("\n"));
    }
}

#[test]
fn right_to_left_letters_that_are_placed_one_by_one_are_words() {
    let line = "הגשר הישן נבנה בשנת 1742 מאבן";
    let text = page(&[line], |font| {
        let (mut x, mut content) = (380.0, String::new());
        for word in line.split(' ') {
            let is_number = word.starts_with(|c: char| c.is_ascii_digit());
            let pieces = if is_number { vec![word.to_owned()] } else { word.chars().map(String::from).collect() };
            for piece in pieces {
                x -= width(&piece, 12.0);
                content += &font.line(&piece, x, 260.0, 12.0);
            }
            x -= 3.0;
        }
        content
    });
    assert_eq!(text, line);
}

#[test]
fn latin_words_inside_of_right_to_left_lines_keep_their_order() {
    let drawn = format!("{} Tower Bridge {}", visual("נבנה בלונדון"), visual("הגשר"));
    assert_eq!(page(&[&drawn], |font| right_aligned(font, std::slice::from_ref(&drawn))), "הגשר Tower Bridge נבנה בלונדון");
    let drawn = format!("The word {} is Hebrew for bridge", visual("גשר"));
    assert_eq!(page(&[&drawn], |font| font.line(&drawn, 20.0, 260.0, 12.0)), "The word גשר is Hebrew for bridge");
}

#[test]
fn right_to_left_lines_that_were_drawn_in_logical_order_stay() {
    let lines = ["הילדים הולכים אל הגשרים", "שלום לכם אנשים טובים"];
    let text = page(&lines, |font| right_aligned(font, &lines.map(String::from)));
    assert_eq!(text, lines.join("\n"));
}

#[test]
fn arabic_presentation_forms_become_plain_letters() {
    // سلام, drawn with forms from left to right; lam-alef is one glyph.
    let drawn = "\u{FEE1}\u{FEFC}\u{FEB3}";
    assert_eq!(page(&[drawn], |font| right_aligned(font, &[drawn.to_owned()])), "سلام");
}

#[test]
fn words_follow_the_gaps_of_their_line() {
    let sentence = "the old bridge was built of stone by two brothers";
    let joined = sentence.replace(' ', "");
    for (between, word) in [(0.0, 0.14), (0.0, 0.3), (0.24, 0.5), (0.12, 0.35)] {
        let text = page(&[&joined], |font| {
            let shown: Vec<String> = sentence.split(' ').map(|word| font.hex(word)).collect();
            let gap = format!(" {} ", -word * 1000.0);
            format!("BT /F1 8 Tf {} Tc 1 0 0 1 20 260 Tm [{}] TJ ET", between * 8.0, shown.join(&gap))
        });
        assert_eq!(text, sentence, "{between} {word}");
    }
}

#[test]
fn letter_spaced_headings_are_words() {
    let (heading, prose) = ("THE OLD BRIDGE", "It was built of stone.");
    let text = page(&[heading, prose], |font| {
        font.line_with(heading, 40.0, 260.0, 14.0, "4 Tc") + &font.line_with(prose, 40.0, 220.0, 12.0, "0 Tc")
    });
    assert_eq!(text, format!("{heading}\n\n{prose}"));
    let spaced = "B R I D G E S   A N D   M I L L S";
    assert_eq!(page(&[spaced], |font| font.line(spaced, 40.0, 260.0, 14.0)), "BRIDGES AND MILLS");
}

const LEFT: [&str; 4] =
    ["The old bridge stands where", "the road leaves the forest.", "It was built of stone by", "two brothers of the town."];
const RIGHT: [&str; 4] =
    ["Every spring the river rose", "and carried away the rails,", "so that nobody could cross", "before the end of April."];

#[test]
fn columns_that_are_drawn_line_by_line_are_read_one_after_the_other() {
    let heading = "Bridges of the upper valley and their builders, from the oldest on";
    let text = page(&[&LEFT[..], &RIGHT, &[heading]].concat(), |font| {
        let row = |i: usize| {
            let y = 240.0 - 12.0 * i as f64;
            font.line(LEFT[i], 30.0, y, 9.0) + &font.line(RIGHT[i], 205.0, y, 9.0)
        };
        font.line(heading, 30.0, 260.0, 9.0) + &(0..4).map(row).collect::<String>()
    });
    assert_eq!(text, [heading, &LEFT.join("\n"), &RIGHT.join("\n")].join("\n\n"));
}

#[test]
fn right_to_left_columns_that_are_drawn_line_by_line_are_read_from_the_right() {
    let first = ["הגשר הישן עומד במקום שבו", "הדרך יוצאת מן היער הגדול", "הוא נבנה מאבן בידי שני", "אחים מן העיר הקטנה"];
    let second = ["בכל אביב עלה הנהר על", "גדותיו ולקח אתו את המעקה", "ואיש לא יכול היה לעבור", "לפני סוף חודש אפריל"];
    let drawn = [first.map(visual), second.map(visual)];
    let texts: Vec<&str> = drawn.iter().flatten().map(String::as_str).collect();
    let text = page(&texts, |font| {
        let line = |i: usize, end: f64| {
            let text = &drawn[usize::from(end < 300.0)][i];
            font.line(text, end - width(text, 10.0), 260.0 - 13.0 * i as f64, 10.0)
        };
        (0..4).map(|i| line(i, 380.0) + &line(i, 190.0)).collect()
    });
    assert_eq!(text, [first.join("\n"), second.join("\n")].join("\n\n"));
}

#[test]
fn rows_of_tables_stay_rows_however_they_are_drawn() {
    let rows = [["Jorg", "miller", "41"], ["Peer", "carter", "17"], ["Anna", "baker", "8"], ["Lena", "weaver", "52"]];
    let cells: Vec<&str> = rows.iter().flatten().copied().collect();
    let cell = |font: &Font, row: usize, column: usize| {
        font.line(rows[row][column], 30.0 + 120.0 * column as f64, 260.0 - 16.0 * row as f64, 10.0)
    };
    let right = rows.map(|row| row.join("\t")).join("\n");
    let by_rows = page(&cells, |font| (0..12).map(|i| cell(font, i / 3, i % 3)).collect());
    assert_eq!(by_rows, right);
    let by_columns = page(&cells, |font| (0..12).map(|i| cell(font, i % 4, i / 4)).collect());
    assert_eq!(by_columns, right);
    let from_the_right = page(&cells, |font| (0..12).map(|i| cell(font, i / 3, 2 - i % 3)).collect());
    assert_eq!(from_the_right, right);
    let order = [7, 2, 10, 4, 0, 9, 11, 5, 1, 8, 3, 6];
    let shuffled = page(&cells, |font| order.iter().map(|i| cell(font, i / 3, i % 3)).collect());
    assert_eq!(shuffled, right);
    let first_column_last = page(&cells, |font| {
        let others: String = (0..8).map(|i| cell(font, i / 2, 1 + i % 2)).collect();
        others + &(0..4).map(|row| cell(font, row, 0)).collect::<String>()
    });
    assert_eq!(first_column_last, right);
    let head_last = page(&cells, |font| (3..15).map(|i| cell(font, i % 12 / 3, i % 3)).collect());
    assert_eq!(head_last, right);
}

#[test]
fn numbers_drawn_after_their_labels_stand_beside_them() {
    let (labels, numbers) = (["Sum", "Tax"], ["1,250", "250"]);
    let texts = [&labels[..], &numbers, &["Please pay in time, or else the gate stays shut", "Fee", "17"]].concat();
    let column = |font: &Font, texts: &[&str], x: f64| -> String {
        texts.iter().enumerate().map(|(i, text)| font.line(text, x, 260.0 - 16.0 * i as f64, 10.0)).collect()
    };
    let two = page(&texts, |font| column(font, &labels, 30.0) + &column(font, &numbers, 200.0));
    assert_eq!(two, "Sum\t1,250\nTax\t250");
    let with_text = page(&texts, |font| {
        let texts = ["Sum", "Tax", "Fee", "Please pay in time, or else the gate stays shut"];
        column(font, &texts, 30.0) + &column(font, &["1,250", "250", "17"], 130.0)
    });
    assert_eq!(with_text, "Sum\t1,250\nTax\t250\nFee\t17\nPlease pay in time, or else the gate stays shut");
}

#[test]
fn right_columns_that_are_drawn_first_are_read_last() {
    let texts: Vec<&str> = LEFT.iter().chain(&RIGHT).copied().collect();
    let line = |font: &Font, i: usize, is_right: bool| {
        let (text, x) = if is_right { (RIGHT[i], 205.0) } else { (LEFT[i], 30.0) };
        font.line(text, x, 260.0 - 12.0 * i as f64, 9.0)
    };
    let right = [LEFT.join("\n"), RIGHT.join("\n")].join("\n\n");
    let whole = page(&texts, |font| (0..8).map(|i| line(font, i % 4, i < 4)).collect());
    assert_eq!(whole, right);
    let by_lines = page(&texts, |font| (0..8).map(|i| line(font, i / 2, i % 2 == 0)).collect());
    assert_eq!(by_lines, right);
}

#[test]
fn lines_that_are_drawn_from_the_bottom_up_are_read_down_the_page() {
    let lines: Vec<&str> = LEFT.iter().chain(&RIGHT).copied().collect();
    let text = page(&lines, |font| (0..8).rev().map(|i| font.line(lines[i], 30.0, 260.0 - 12.0 * i as f64, 9.0)).collect());
    assert_eq!(text, lines.join("\n"));
}

#[test]
fn raised_digits_are_powers_and_notes() {
    let text = page(&["The lake holds 106 barrels of 2 m3, or so said Brown.12"], |font| {
        let mut x = 20.0;
        let mut piece = |text: &str, is_raised: bool| {
            let (size, y) = if is_raised { (6.0, 264.0) } else { (10.0, 260.0) };
            let line = font.line(text, x, y, size);
            x += width(text, size);
            line
        };
        let pieces = [
            ("The lake holds 10", false),
            ("6", true),
            (" barrels of 2 m", false),
            ("3", true),
            (", or so said Brown.", false),
            ("12", true),
        ];
        pieces.iter().map(|(text, is_raised)| piece(text, *is_raised)).collect()
    });
    assert_eq!(text, "The lake holds 10^6 barrels of 2 m^3, or so said Brown.[12]");
    let risen = page(&["Dug in 1848, x2"], |font| {
        let [dug, note, x, two] = ["Dug in 1848", "2", ", x", "2"].map(|text| font.hex(text));
        format!("BT /F1 10 Tf 20 260 Td {dug} Tj 4 Ts {note} Tj 0 Ts {x} Tj 4 Ts {two} Tj ET")
    });
    assert_eq!(risen, "Dug in 1848[2], x^2");
}

#[test]
fn letters_drawn_twice_count_once_and_double_digits_twice() {
    let line = "11 sacks in 2001, 6000 in 1166";
    let bold = page(&[line], |font| [0.0, 0.3].map(|d| font.line(line, 20.0 + d, 260.0, 12.0)).concat());
    assert_eq!(bold, line);
    let narrow = page(&[line], |font| format!("BT /F1 1 Tf 8 0 0 44 20 200 Tm {} Tj ET", font.hex(line)));
    assert_eq!(narrow, line);
}
