//! Serial numbers.

use std::fmt;

use ring::rand::SecureRandom;
use x509_parser::certificate::X509Certificate;
use x509_parser::prelude::FromDer;

use crate::keys::private::KeyError;
use crate::timestamp::Timestamp;

/// The length of a serial number in octets, the most that RFC 5280 section 4.1.2.2 allows.
const OCTETS: usize = 20;
/// How many of these octets hold the time.
const TIME: usize = 4;

/// A serial number: 4 octets of time, then 128 random bits (CA/Browser Forum BR 7.1 asks for 64), which make it unique
/// without a list of all numbers (invariant I4).
///
/// The time is when the number was made, in units of two seconds. So new numbers are adjacent in an index of all
/// numbers, and a ledger with millions of entries writes as fast as a new one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Serial([u8; OCTETS]);

impl Serial {
    /// Makes a new serial number at `now`.
    ///
    /// # Errors
    /// [`KeyError::Random`] if the system has no random bytes.
    pub fn new(now: Timestamp, rng: &dyn SecureRandom) -> Result<Self, KeyError> {
        let mut bytes = [0; OCTETS];
        let (time, random) = bytes.split_at_mut(TIME);
        // The time has 31 bits, which last until 2106. With the 32nd bit DER would need a 21st octet to keep the number
        // positive.
        let units = u32::try_from(now.unix() >> 1).unwrap_or(u32::MAX) & (u32::MAX >> 1);
        time.copy_from_slice(&units.to_be_bytes());
        rng.fill(random).map_err(|_| KeyError::Random)?;
        Ok(Self(bytes))
    }

    /// Reads the text that `Display` writes. `None` for any other text.
    pub fn from_hex(text: &str) -> Option<Self> {
        let bytes = data_encoding::HEXLOWER.decode(text.as_bytes()).ok()?;
        Self::from_octets(&bytes).filter(|serial| serial.to_string() == text)
    }

    /// The serial number of a certificate. `None` if the certificate cannot be read, or its number has more than 20
    /// octets.
    pub fn of(certificate: &[u8]) -> Option<Self> {
        Self::of_leaf(&X509Certificate::from_der(certificate).ok()?.1)
    }

    pub(crate) fn of_leaf(leaf: &X509Certificate<'_>) -> Option<Self> {
        // DER keeps a number positive by a leading zero (X.690 section 8.3.2).
        let zeros = leaf.raw_serial().iter().take_while(|byte| **byte == 0).count();
        Self::from_octets(leaf.raw_serial().get(zeros..)?)
    }

    fn from_octets(number: &[u8]) -> Option<Self> {
        let mut bytes = [0; OCTETS];
        bytes.get_mut(OCTETS.checked_sub(number.len())?..)?.copy_from_slice(number);
        Some(Self(bytes))
    }

    /// When the number was made, or a second before that.
    pub fn made(self) -> Timestamp {
        let time = self.0.iter().take(TIME).fold(0, |time, octet| time << 8 | i64::from(*octet));
        Timestamp::from_unix(time << 1)
    }

    /// The octets, the highest first.
    pub(crate) fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

/// 40 lower-case hexadecimal digits.
impl fmt::Display for Serial {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&data_encoding::HEXLOWER.encode(&self.0))
    }
}

#[cfg(test)]
mod tests {
    use ring::rand::SystemRandom;

    use super::*;

    fn at(seconds: i64) -> String {
        Serial::new(Timestamp::from_unix(seconds), &SystemRandom::new()).unwrap().to_string()
    }

    #[test]
    fn numbers_are_random_and_in_the_order_of_their_times() {
        let one = at(1_795_000_000);
        let other = at(1_795_000_000);
        assert_eq!((one.len(), &one[..8]), (40, &*format!("{:08x}", 1_795_000_000 / 2)));
        assert_ne!(one[8..], other[8..]);
        assert!(one < at(1_795_000_002));
        for text in [one, at(1_795_000_001)] {
            assert_eq!(Serial::from_hex(&text).unwrap().made(), Timestamp::from_unix(1_795_000_000));
        }
    }

    #[test]
    fn no_time_makes_a_number_negative_or_too_long() {
        for seconds in [i64::MIN, -1, 0, u32::MAX.into(), i64::from(u32::MAX) + 2, i64::MAX] {
            let serial = Serial::new(Timestamp::from_unix(seconds), &SystemRandom::new()).unwrap();
            assert!(serial.as_bytes()[0] < 0x80, "{seconds}: {serial}");
        }
    }

    #[test]
    fn numbers_are_read_back_as_they_are_written() {
        for text in ["3580b1c00123456789abcdef0123456789abcdef", "0000000000000000000000000000000000000001"] {
            assert_eq!(Serial::from_hex(text).unwrap().to_string(), text);
        }
        for text in ["", "1", "0123456789abcdef0123456789abcdef", "3580B1C00123456789ABCDEF0123456789ABCDEF"] {
            assert_eq!(Serial::from_hex(text), None, "{text}");
        }
    }
}
