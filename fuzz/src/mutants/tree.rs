//! DER as a tree of pieces, so that one piece can be changed and all lengths around it stay right.

/// How the length of a piece is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Length {
    /// As DER demands.
    Shortest,
    /// In four bytes.
    Long,
    /// Indefinite, with two zero bytes at the end.
    Indefinite,
}

/// A tag, a length and a content.
#[derive(Debug, Clone)]
pub struct Piece {
    /// The first byte.
    pub tag: u8,
    /// How the length is written.
    pub length: Length,
    /// What comes before the content: the number of unused bits of a BIT STRING.
    pub before: Vec<u8>,
    /// The content.
    pub content: Content,
}

/// What a piece holds.
#[derive(Debug, Clone)]
pub enum Content {
    /// Bytes that are no DER.
    Bytes(Vec<u8>),
    /// Pieces, also inside an OCTET STRING or a BIT STRING.
    Pieces(Vec<Piece>),
}

impl Piece {
    /// A piece of bytes.
    pub fn of(tag: u8, bytes: &[u8]) -> Self {
        Self { tag, length: Length::Shortest, before: Vec::new(), content: Content::Bytes(bytes.to_vec()) }
    }

    /// Reads exactly one piece.
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        match parse_all(bytes)?.as_slice() {
            [piece] => Some(piece.clone()),
            _ => None,
        }
    }

    /// Writes the piece.
    pub fn encode(&self) -> Vec<u8> {
        let inner = match &self.content {
            Content::Bytes(bytes) => bytes.clone(),
            Content::Pieces(pieces) => pieces.iter().flat_map(Self::encode).collect(),
        };
        let content = [self.before.as_slice(), &inner].concat();
        let length = u32::try_from(content.len()).unwrap_or(u32::MAX).to_be_bytes();
        match self.length {
            Length::Shortest => crate::tlv(self.tag, &[&content]),
            Length::Long => [&[self.tag, 0x84], length.as_slice(), &content].concat(),
            Length::Indefinite => [&[self.tag, 0x80], content.as_slice(), &[0, 0]].concat(),
        }
    }

    /// The inner pieces.
    pub fn children(&mut self) -> Option<&mut Vec<Piece>> {
        match &mut self.content {
            Content::Pieces(pieces) => Some(pieces),
            Content::Bytes(_) => None,
        }
    }

    /// The number of pieces, with this one.
    pub fn count(&self) -> usize {
        match &self.content {
            Content::Pieces(pieces) => 1 + pieces.iter().map(Self::count).sum::<usize>(),
            Content::Bytes(_) => 1,
        }
    }

    /// The piece with this number, counted from the outside, this one first.
    pub fn nth(&mut self, mut number: usize) -> Option<&mut Self> {
        if number == 0 {
            return Some(self);
        }
        number -= 1;
        for child in self.children()? {
            let inside = child.count();
            if number < inside {
                return child.nth(number);
            }
            number -= inside;
        }
        None
    }
}

fn parse_all(mut bytes: &[u8]) -> Option<Vec<Piece>> {
    let mut pieces = Vec::new();
    while let [tag, length, rest @ ..] = bytes {
        let (length, rest) = match length {
            short @ 0..=0x7f => (usize::from(*short), rest),
            0x81 => (usize::from(*rest.first()?), rest.get(1..)?),
            0x82 => (usize::from(u16::from_be_bytes(*rest.first_chunk()?)), rest.get(2..)?),
            _ => return None,
        };
        let (content, tail) = rest.split_at_checked(length)?;
        pieces.push(piece(*tag, content)?);
        bytes = tail;
    }
    bytes.is_empty().then_some(pieces)
}

fn piece(tag: u8, bytes: &[u8]) -> Option<Piece> {
    let hidden = |bytes: &[u8]| parse_all(bytes).filter(|pieces| !pieces.is_empty());
    let (before, content) = match (tag, bytes) {
        (tag, _) if tag & 0x20 != 0 => (Vec::new(), Content::Pieces(parse_all(bytes)?)),
        (4, _) => (Vec::new(), hidden(bytes).map_or_else(|| Content::Bytes(bytes.to_vec()), Content::Pieces)),
        (3, [unused, rest @ ..]) => {
            (vec![*unused], hidden(rest).map_or_else(|| Content::Bytes(rest.to_vec()), Content::Pieces))
        }
        _ => (Vec::new(), Content::Bytes(bytes.to_vec())),
    };
    Some(Piece { tag, length: Length::Shortest, before, content })
}
