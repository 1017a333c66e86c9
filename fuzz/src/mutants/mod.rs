//! Mutants of a good CSR: changes of its DER and of its PEM, chosen by a seed.

use tree::{Content, Length, Piece};

pub mod tree;

/// Numbers that look random and depend on a seed only (SplitMix64).
pub struct Chance(u64);

impl Chance {
    /// The numbers of a seed.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// A number below `bound`, or 0.
    pub fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) as usize % bound.max(1)
    }

    /// One of the items.
    pub fn pick<'i, T>(&mut self, items: &'i [T]) -> &'i T {
        &items[self.below(items.len())]
    }
}

/// The name of a change that changed nothing.
pub const NOTHING: &str = "nothing";

/// Tags of strings, and tags that belong nowhere in a CSR.
const TAGS: [u8; 16] = [0x0c, 0x13, 0x16, 0x14, 0x1e, 0x1c, 0x12, 0x1a, 0x80, 0x82, 0xa0, 0x2c, 0x30, 0x31, 0x04, 0x01];
/// Text that parsers disagree about.
const TEXTS: [&str; 10] = ["\0", " ", "é", "\u{200b}", "*", "@", "+CN=x", "\n", ",", "/"];
/// Contents of key usage, basic constraints, integers and booleans, good ones and others.
const CONTENTS: [&[u8]; 11] =
    [&[5, 0xa0], &[7, 0x80], &[0, 0xa0], &[5, 0xa1], &[0], &[], &[0xff], &[1], &[0, 0], &[0, 0x80], &[8, 0]];
/// Extensions to ask for: key usage, basic constraints and purposes, with and without what DER leaves out.
const EXTENSIONS: [&[u8]; 11] = [
    b"\x30\x0b\x06\x03\x55\x1d\x0f\x04\x04\x03\x02\x05\xa0",
    b"\x30\x0b\x06\x03\x55\x1d\x0f\x04\x04\x03\x02\x07\x80",
    b"\x30\x0b\x06\x03\x55\x1d\x0f\x04\x04\x03\x02\x00\xa0",
    b"\x30\x0b\x06\x03\x55\x1d\x0f\x04\x04\x03\x02\x05\xa1",
    b"\x30\x0a\x06\x03\x55\x1d\x0f\x04\x03\x03\x01\x00",
    b"\x30\x0e\x06\x03\x55\x1d\x0f\x01\x01\xff\x04\x04\x03\x02\x05\xa0",
    b"\x30\x09\x06\x03\x55\x1d\x13\x04\x02\x30\x00",
    b"\x30\x0c\x06\x03\x55\x1d\x13\x04\x05\x30\x03\x01\x01\x00",
    b"\x30\x0c\x06\x03\x55\x1d\x13\x01\x01\x00\x04\x02\x30\x00",
    b"\x30\x13\x06\x03\x55\x1d\x25\x04\x0c\x30\x0a\x06\x08\x2b\x06\x01\x05\x05\x07\x03\x02",
    b"\x30\x1d\x06\x03\x55\x1d\x25\x04\x16\x30\x14\x06\x08\x2b\x06\x01\x05\x05\x07\x03\x02\
      \x06\x08\x2b\x06\x01\x05\x05\x07\x03\x02",
];

/// Changes one piece of `root`, and says how. `donor` is another CSR, whose pieces may be taken.
pub fn change(root: &mut Piece, donor: &Piece, chance: &mut Chance) -> &'static str {
    let number = chance.below(root.count());
    let Some(piece) = root.nth(number) else { return NOTHING };
    match chance.below(16) {
        0 | 1 => among(piece, chance, |children, at| children.insert(at, children[at].clone()), "repeat a piece"),
        2 => among(piece, chance, |children, at| drop(children.remove(at)), "remove a piece"),
        3 => among(piece, chance, |children, at| children.swap(0, at), "swap two pieces"),
        4 => take(piece, donor, chance),
        5 => {
            piece.tag = *chance.pick(&TAGS);
            "change a tag"
        }
        6 => {
            piece.length = *chance.pick(&[Length::Long, Length::Indefinite]);
            "change the form of a length"
        }
        7 | 8 => change_bytes(piece, chance),
        9 => among(piece, chance, |children, at| children.insert(at + 1, Piece::of(1, &[0])), "insert FALSE"),
        10 => among(piece, chance, |children, at| children.insert(at + 1, Piece::of(5, &[])), "insert NULL"),
        11 => {
            piece.before = vec![u8::try_from(chance.below(9)).unwrap_or_default()];
            "change the number of unused bits"
        }
        12 => {
            piece.content = Content::Bytes(chance.pick(&CONTENTS).to_vec());
            "change the whole content"
        }
        13 => repeat_in_another_type(piece, chance),
        _ => add_extension(root, chance),
    }
}

fn among(
    piece: &mut Piece,
    chance: &mut Chance,
    change: impl Fn(&mut Vec<Piece>, usize),
    name: &'static str,
) -> &'static str {
    let is_set = piece.tag == 0x31;
    let Some(children) = piece.children().filter(|children| !children.is_empty()) else { return NOTHING };
    let at = chance.below(children.len());
    change(children, at);
    if is_set && chance.below(4) > 0 {
        children.sort_by_key(Piece::encode);
    }
    name
}

/// Sets of a subject have two attributes then whose text is the same and whose type differs.
fn repeat_in_another_type(piece: &mut Piece, chance: &mut Chance) -> &'static str {
    let another = |children: &mut Vec<Piece>, at: usize| {
        let mut copy = children[at].clone();
        if let Some(value) = copy.children().and_then(|parts| parts.get_mut(1)) {
            value.tag = if value.tag == 0x0c { 0x13 } else { 0x0c };
        }
        children.push(copy);
    };
    among(piece, chance, another, "repeat a piece in another type")
}

fn take(piece: &mut Piece, donor: &Piece, chance: &mut Chance) -> &'static str {
    let mut donor = donor.clone();
    let same: Vec<Piece> = (0..donor.count())
        .filter_map(|number| donor.nth(number).cloned())
        .filter(|other| other.tag == piece.tag)
        .collect();
    if let Some(other) = same.get(chance.below(same.len())) {
        *piece = other.clone();
    }
    "take a piece of another CSR"
}

fn change_bytes(piece: &mut Piece, chance: &mut Chance) -> &'static str {
    let Content::Bytes(bytes) = &mut piece.content else { return NOTHING };
    let at = chance.below(bytes.len());
    match chance.below(5) {
        0 if !bytes.is_empty() => {
            bytes[at] ^= 1 << chance.below(8);
            "flip a bit"
        }
        1 if !bytes.is_empty() => {
            bytes.remove(at);
            "remove a byte"
        }
        2 => {
            bytes.insert(0, 0);
            "insert a zero"
        }
        3 => {
            bytes.make_ascii_uppercase();
            "write in capitals"
        }
        _ => {
            bytes.splice(at..at, chance.pick(&TEXTS).bytes());
            "insert text"
        }
    }
}

/// Adds an extension to the first list of extensions, which is in the last part of a CSR.
fn add_extension(root: &mut Piece, chance: &mut Chance) -> &'static str {
    let list = [3, 0, 1, 0].iter().try_fold(root, |piece, at| piece.children()?.get_mut(*at)).and_then(Piece::children);
    if let (Some(list), Some(extension)) = (list, Piece::parse(chance.pick::<&[u8]>(&EXTENSIONS))) {
        list.push(extension);
    }
    "add an extension"
}

/// Changes the text around the base64 of one PEM block, or the base64 itself.
pub fn change_pem(text: &str, chance: &mut Chance) -> (String, &'static str) {
    let lines: Vec<&str> = text.lines().collect();
    let body: String = lines[1..lines.len() - 1].concat();
    let around = |body: &str| format!("{}\n{body}\n{}\n", lines[0], lines[lines.len() - 1]);
    let by = |width: usize| -> String {
        let rows: Vec<&str> = body.as_bytes().chunks(width).filter_map(|row| std::str::from_utf8(row).ok()).collect();
        rows.join("\n")
    };
    match chance.below(14) {
        0 => (text.replace('\n', "\r\n"), "lines end in CR LF"),
        1 => (text.replace('\n', "\r"), "lines end in CR"),
        2 => (around(&body), "one long line"),
        3 => (around(&by(76)), "lines of 76"),
        4 => (around(&by(63)), "lines of 63"),
        5 => (around(&by(1)), "lines of 1"),
        6 => (around(&by(64).replace('\n', " \n")), "spaces at the end of lines"),
        7 => (around(&by(64).replace('\n', "\n ")), "spaces at the beginning of lines"),
        8 => (around(&by(64).replacen('\n', "\n\n", 1)), "an empty line inside"),
        9 => (around(body.trim_end_matches('=')), "no padding"),
        10 => (around(&format!("{}==", by(64))), "more padding"),
        11 => (format!("\n \t{}", text.trim_end()), "white space before, none after"),
        12 => (text.replace("-----\n", "----- \n"), "spaces after the lines of dashes"),
        _ => (text.replacen("-----\n", "-----", 1), "base64 in the first line"),
    }
}
