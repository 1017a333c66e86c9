//! Finds a secret in what our programs write, in every encoding in which it may get there.

use super::pki::base64;

/// So many bytes, or characters of base64, do not occur by chance.
const PIECE: usize = 12;
/// Where the key begins in PKCS#8: an octet string of 32 bytes, in keys of P-256 and Ed25519. What comes before is the
/// same in each key, and what comes after is public.
const KEY_FOLLOWS: [u8; 2] = [0x04, 32];

/// The bytes of a PKCS#8 key that nobody else may know.
pub fn private_bytes(pkcs8: &[u8]) -> Vec<u8> {
    let at = pkcs8.windows(2).position(|bytes| bytes == KEY_FOLLOWS).expect("a key of P-256 or Ed25519") + 2;
    pkcs8[at..at + 32].to_vec()
}

/// Which encoding of a piece of `secret` is in `text`, if one is. Line breaks and spaces do not count.
pub fn find(secret: &[u8], text: &[u8]) -> Option<&'static str> {
    let is_raw = |piece: &[u8]| text.windows(PIECE).any(|bytes| bytes == piece);
    if secret.chunks_exact(PIECE).any(is_raw) {
        return Some("raw");
    }
    let text = dense(&String::from_utf8_lossy(text));
    // PEM and `data` of a Secret are base64; a log may encode that once more.
    let inner = [vec![secret.to_vec()], in_base64(secret).map(String::into_bytes).to_vec()].concat();
    let pieces = inner.iter().flat_map(|bytes| bytes.chunks_exact(PIECE));
    pieces.flat_map(encodings).find(|(_, encoded)| text.contains(&dense(encoded))).map(|(name, _)| name)
}

fn dense(text: &str) -> String {
    text.split_ascii_whitespace().collect()
}

/// What encoders make of these bytes.
fn encodings(piece: &[u8]) -> Vec<(&'static str, String)> {
    let joined = |separator: &str, write: fn(u8) -> String| {
        piece.iter().map(|byte| write(*byte)).collect::<Vec<_>>().join(separator)
    };
    let mut found = vec![("escaped", piece.escape_ascii().to_string())];
    found.extend(
        in_base64(piece)
            .into_iter()
            .flat_map(|text| [("base64", text.clone()), ("base64 for URLs", text.replace('+', "-").replace('/', "_"))]),
    );
    for separator in ["", ":", ","] {
        found.push(("decimal", joined(separator, |byte| byte.to_string())));
        found.push(("hexadecimal", joined(separator, |byte| format!("{byte:02x}"))));
        found.push(("hexadecimal", joined(separator, |byte| format!("{byte:02X}"))));
        found.push(("hexadecimal", joined(separator, |byte| format!("{byte:x}"))));
    }
    found
}

/// The characters of base64 that these bytes alone decide, for each place that they can have in a text.
fn in_base64(bytes: &[u8]) -> [String; 3] {
    [0, 1, 2].map(|before| {
        let encoded = base64(&[vec![0; before].as_slice(), bytes].concat());
        encoded[(before * 8).div_ceil(6)..(before + bytes.len()) * 8 / 6].to_owned()
    })
}
