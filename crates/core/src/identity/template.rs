//! Texts with placeholders.

use super::IdentityError;

const TEMPLATE_MAX: usize = 512; // longer than any convention in use, and short enough for a subject

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Placeholder {
    Cluster,
    AddOn,
    Agent,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Piece {
    Literal(String),
    Hole(Placeholder),
}

/// A text with placeholders.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Template {
    pub(super) source: String,
    pieces: Vec<Piece>,
}

impl Template {
    pub(super) fn parse(source: &str) -> Result<Self, IdentityError> {
        let printable = source.bytes().all(|b| (0x20..0x7f).contains(&b));
        if source.is_empty() || source.len() > TEMPLATE_MAX || !printable {
            return Err(IdentityError::TemplateLength(source.to_owned()));
        }
        let mut pieces = Vec::new();
        let mut rest = source;
        while let Some((literal, tail)) = rest.split_once('{') {
            let (name, after) = tail.split_once('}').unwrap_or(("", ""));
            let hole = match name {
                "cluster" => Placeholder::Cluster,
                "addon" => Placeholder::AddOn,
                "agent" => Placeholder::Agent,
                _ => return Err(IdentityError::UnknownPlaceholder(source.to_owned())),
            };
            push_literal(&mut pieces, literal, source)?;
            pieces.push(Piece::Hole(hole));
            rest = after;
        }
        push_literal(&mut pieces, rest, source)?;
        let template = Self { source: source.to_owned(), pieces };
        if template.is_unambiguous() { Ok(template) } else { Err(IdentityError::Ambiguous(source.to_owned())) }
    }

    /// A placeholder ends where the next literal begins, so that literal must begin with a character that no name can
    /// have.
    fn is_unambiguous(&self) -> bool {
        self.pieces.windows(2).all(|pair| match pair {
            [Piece::Hole(_), Piece::Hole(_)] => false,
            [Piece::Hole(_), Piece::Literal(text)] => {
                self.is_last(text) || text.starts_with(|c: char| !c.is_ascii_alphanumeric() && !"-_.".contains(c))
            }
            _ => true,
        })
    }

    /// Whether no placeholder follows the literal `text`. Then it is a suffix, and any text is unambiguous.
    fn is_last(&self, text: &str) -> bool {
        matches!(self.pieces.last(), Some(Piece::Literal(last)) if std::ptr::eq(last.as_str(), text))
    }

    pub(super) fn count(&self, hole: Placeholder) -> usize {
        self.pieces.iter().filter(|piece| **piece == Piece::Hole(hole)).count()
    }

    pub(super) fn render(&self, cluster: &str, addon: &str, agent: &str) -> String {
        self.pieces
            .iter()
            .map(|piece| match piece {
                Piece::Literal(text) => text.as_str(),
                Piece::Hole(Placeholder::Cluster) => cluster,
                Piece::Hole(Placeholder::AddOn) => addon,
                Piece::Hole(Placeholder::Agent) => agent,
            })
            .collect()
    }

    /// The texts in place of the placeholders, in order. `None` if `text` does not have this template's form.
    pub(super) fn captures<'t>(&self, text: &'t str) -> Option<Vec<(Placeholder, &'t str)>> {
        let mut found = Vec::new();
        let mut rest = text;
        for (index, piece) in self.pieces.iter().enumerate() {
            match piece {
                Piece::Literal(literal) => rest = rest.strip_prefix(literal.as_str())?,
                Piece::Hole(hole) => {
                    let end = match self.pieces.get(index + 1..) {
                        Some([Piece::Literal(last)]) => rest.len().checked_sub(last.len())?,
                        Some([Piece::Literal(next), ..]) => rest.find(next.as_str())?,
                        _ => rest.len(),
                    };
                    let (value, tail) = rest.split_at_checked(end)?;
                    found.push((*hole, value));
                    rest = tail;
                }
            }
        }
        rest.is_empty().then_some(found)
    }
}

fn push_literal(pieces: &mut Vec<Piece>, literal: &str, source: &str) -> Result<(), IdentityError> {
    if literal.contains('}') {
        return Err(IdentityError::UnknownPlaceholder(source.to_owned()));
    }
    if !literal.is_empty() {
        pieces.push(Piece::Literal(literal.to_owned()));
    }
    Ok(())
}
