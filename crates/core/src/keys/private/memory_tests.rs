//! Searches this process's own memory for key bytes.
//!
//! The searched bytes are stored masked, so that the search does not find its own input. Every key is new, so that
//! other tests in the process do not matter.

use std::fs::{self, File};
use std::io::BufRead;
use std::ops::Range;
use std::os::unix::fs::FileExt;

use ring::digest;
use ring::rand::SystemRandom;

use super::*;

const MASK: u8 = 0xa5;
const CHUNK: usize = 4096;
/// The length of a P-384 scalar, the longest form of a key, in bytes.
const LONGEST: usize = 48;

/// One form of a key, with every byte masked.
struct Needle {
    form: &'static str,
    masked: Vec<u8>,
}

/// This is one test, because a second search at the same time would have copies of the bytes that the first searches.
#[test]
fn wiped_keys_leave_no_copy() {
    for (kind, stored, live) in KINDS {
        let rng = SystemRandom::new();
        let (key, pkcs8) = PrivateKey::generate(kind, &rng).unwrap();
        let needles = needles(kind, &pkcs8);
        assert_eq!(copies(&needles), [&[(stored, 1)], live].concat(), "{kind}: the search finds a living key, once");
        drop(key);
        assert_eq!(copies(&needles), [(stored, 1)], "{kind}: what is left of a key that was made and dropped");
        let key = PrivateKey::from_pkcs8(&pkcs8, &rng).unwrap();
        drop(pkcs8);
        assert_eq!(copies(&needles), live, "{kind}: a key that was read is where it lives and nowhere else");
        key.sign(b"message", &rng).unwrap();
        assert_eq!(copies(&needles), live, "{kind}: so is a key that has signed");
        drop(key);
        assert_eq!(copies(&needles), [], "{kind}: what is left of a key that was read, has signed and was dropped");
    }
}

/// A kind of key, its form in PKCS#8, and its forms in a [`PrivateKey`], each with its number of copies.
type Kind = (KeyKind, &'static str, &'static [(&'static str, usize)]);

const KINDS: [Kind; 3] = [
    (KeyKind::EcdsaP256, "big-endian", &[("Montgomery", 1)]),
    (KeyKind::EcdsaP384, "big-endian", &[("Montgomery", 1)]),
    (KeyKind::Ed25519, "seed", &[("scalar", 1), ("prefix", 1)]),
];

/// The forms of a key's bytes: as stored, and as ring has them in memory (little-endian limbs, Montgomery form).
fn needles(kind: KeyKind, pkcs8: &[u8]) -> Vec<Needle> {
    on_wiped_stack(|| forms(kind, pkcs8))
}

fn forms(kind: KeyKind, pkcs8: &[u8]) -> Vec<Needle> {
    let needle = |form, bytes: &[u8]| Needle { form, masked: bytes.iter().map(|byte| byte ^ MASK).collect() };
    if kind == KeyKind::Ed25519 {
        let seed = after(pkcs8, &[4, 0x22, 4, 32], 32);
        let expanded = digest::digest(&digest::SHA512, seed);
        let (scalar, prefix) = expanded.as_ref().split_at(32);
        // RFC 8032 section 5.1.5 changes bits of the scalar's first and last byte.
        return vec![needle("seed", seed), needle("scalar", &scalar[1..31]), needle("prefix", prefix)];
    }
    let (length, order): (u8, &[u64]) = if kind == KeyKind::EcdsaP256 { (32, &P256_ORDER) } else { (48, &P384_ORDER) };
    let scalar = after(pkcs8, &[2, 1, 1, 4, length], usize::from(length));
    let mut limbs: Zeroizing<Vec<u64>> = Zeroizing::new(
        scalar.rchunks(8).map(|limb| limb.iter().fold(0, |value, byte| value << 8 | u64::from(*byte))).collect(),
    );
    let little_endian = little_endian(&limbs);
    for _ in 0..u32::from(length) * 8 {
        double(&mut limbs, order);
    }
    let montgomery = self::little_endian(&limbs);
    vec![needle("big-endian", scalar), needle("limbs", &little_endian), needle("Montgomery", &montgomery)]
}

/// The orders of the curves (FIPS 186-4 D.1.2.3 and D.1.2.4), least significant limb first.
const P256_ORDER: [u64; 4] = [0xf3b9_cac2_fc63_2551, 0xbce6_faad_a717_9e84, u64::MAX, 0xffff_ffff_0000_0000];
const P384_ORDER: [u64; 6] =
    [0xecec_196a_ccc5_2973, 0x581a_0db2_48b0_a77a, 0xc763_4d81_f437_2ddf, u64::MAX, u64::MAX, u64::MAX];

/// Doubles the number modulo the order, in place.
fn double(limbs: &mut [u64], order: &[u64]) {
    let mut carry = 0;
    for limb in limbs.iter_mut() {
        let next = *limb >> 63;
        *limb = *limb << 1 | carry;
        carry = next;
    }
    if carry == 1 || limbs.iter().rev().ge(order.iter().rev()) {
        let mut borrow = false;
        for (limb, order) in limbs.iter_mut().zip(order) {
            let (less, first) = limb.overflowing_sub(*order);
            let (less, second) = less.overflowing_sub(u64::from(borrow));
            *limb = less;
            borrow = first || second;
        }
    }
}

fn little_endian(limbs: &[u64]) -> Zeroizing<Vec<u8>> {
    let mut bytes = Zeroizing::new(vec![0; limbs.len() * 8]);
    for (eight, limb) in bytes.chunks_mut(8).zip(limbs) {
        eight.copy_from_slice(&limb.to_le_bytes());
    }
    bytes
}

fn after<'b>(bytes: &'b [u8], marker: &[u8], length: usize) -> &'b [u8] {
    let at = bytes.windows(marker.len()).position(|window| window == marker).unwrap() + marker.len();
    &bytes[at..at + length]
}

/// How often each form is in writable memory, without the forms that are not there.
fn copies(needles: &[Needle]) -> Vec<(&'static str, usize)> {
    let memory = File::open("/proc/self/mem").unwrap();
    let maps = fs::read_to_string("/proc/self/maps").unwrap();
    let mut buffer = vec![0_u8; CHUNK + LONGEST - 1];
    let own = buffer.as_ptr().addr() as u64..(buffer.as_ptr().addr() + buffer.len()) as u64;
    let mut counts = vec![0; needles.len()];
    for region in maps.lines().filter_map(writable) {
        // The buffer itself is not searched, because it has copies of what was read.
        for part in [region.start..region.end.min(own.start), region.start.max(own.end)..region.end] {
            scan(&memory, part, &mut buffer, needles, &mut counts);
        }
    }
    let found = needles.iter().map(|needle| needle.form).zip(counts);
    found.filter(|(_, count)| *count > 0).collect()
}

fn writable(line: &str) -> Option<Range<u64>> {
    let mut parts = line.split(' ');
    let (start, end) = parts.next()?.split_once('-')?;
    let address = |text| u64::from_str_radix(text, 16).ok();
    if parts.next()?.starts_with("rw") { Some(address(start)?..address(end)?) } else { None }
}

/// Searches in chunks. Each read is longer than its chunk, so that it contains a needle that starts at the chunk's end.
fn scan(memory: &File, part: Range<u64>, buffer: &mut [u8], needles: &[Needle], counts: &mut [usize]) {
    for at in part.clone().step_by(CHUNK) {
        let wanted = buffer.len().min(usize::try_from(part.end - at).unwrap());
        // Another thread may have unmapped the region meanwhile.
        let Ok(read) = memory.read_at(&mut buffer[..wanted], at) else { break };
        for (needle, count) in needles.iter().zip(counts.iter_mut()) {
            *count += occurrences(&buffer[..read], &needle.masked);
        }
        buffer.fill(0);
    }
}

/// Compares slices and uses `skip_until`, because loops over bytes are slow without optimization, and most of memory is
/// zero.
fn occurrences(bytes: &[u8], masked: &[u8]) -> usize {
    if bytes == &[0; CHUNK + LONGEST - 1][..bytes.len()] {
        return 0;
    }
    // A byte of the needle that is rare in text and small numbers.
    let pivot = masked.iter().position(|byte| (0x80..0xff).contains(&(byte ^ MASK))).unwrap();
    let mut rest = bytes.get(pivot..).unwrap_or_default();
    let mut at = 0;
    let mut count = 0;
    while !rest.is_empty() {
        at += rest.skip_until(masked[pivot] ^ MASK).unwrap();
        let candidate = bytes.get(at - 1..at - 1 + masked.len()).filter(|_| at <= CHUNK);
        let matches = |window: &[u8]| window.iter().zip(masked).all(|(byte, masked)| byte ^ MASK == *masked);
        count += usize::from(candidate.is_some_and(matches));
    }
    count
}
