//! Keys for examples only: RFCs print all of them as test keys, so nobody can take them for secrets.

use addon_signer_core::keys::private::PrivateKey;
use ring::rand::SystemRandom;

use crate::requests::tlv::{INTEGER, OCTET_STRING, SEQUENCE, bits, oid, sequence, tlv};

/// A P-256 key as its RFC prints it: the scalar, then both coordinates of the point.
pub(crate) struct PublishedKey([&'static str; 3]);

/// The key of the example's client CA: RFC 9500 section 2.3, `testECCP256`.
pub(crate) const CLIENT_CA: PublishedKey = PublishedKey([
    "e6cb5bdd80aa45ae9c95e8c15476679ffec953c16851e711e743939589c64fc1",
    "422548f88fb782ffb5eca3744452c72a1e558fbd6f73be5e48e93232cc45c5b1",
    "6c4cd10c4cb8d5b8a17139e94882c8992572993425f41419ab7e90a42a494272",
]);
/// The key of the example's serving CA: RFC 6979 section A.2.5.
pub(crate) const SERVING_CA: PublishedKey = PublishedKey([
    "c9afa9d845ba75166b5c215767b1d6934e50c3db36e89b127b8a622b120f6721",
    "60fed4ba255a9d31c961eb74c6356d68c049b8923b61fa6ce669622e60f29fb6",
    "7903fe1008b8bc99a41ae9e95628bc64f2f1b20c2d7e9f5177a3c294d4462299",
]);
/// The key of the example's agent: RFC 5903 section 8.1, the initiator.
pub(crate) const CLIENT: PublishedKey = PublishedKey([
    "c88f01f510d9ac3f70a292daa2316de544e9aab8afe84049c62a9c57862d1433",
    "dad0b65394221cf9b051e1feca5787d098dfe637fc90b9ef945d0c3772581180",
    "5271a0461cdb8252d61f1c456fa3e59ab1f45b33accf5f58389e0577b8990bb3",
]);
/// The key of the example's gateway: RFC 5903 section 8.1, the responder.
pub(crate) const SERVING: PublishedKey = PublishedKey([
    "c6ef9c5d78ae012a011164acb397ce2088685d8f06bf9be0b283ab46476bee53",
    "d12dfb5289c8d4f81208b70270398c342296970a0bccb74c736fc7554494bf63",
    "56fbf3ca366cc23e8157854c13c58d6aac23f046ada30f8353e74f33039872ab",
]);
/// The key of the example's CA for the gateway's client certificate: RFC 7515 section A.3.
pub(crate) const GATEWAY_CLIENT_CA: PublishedKey = PublishedKey([
    "8e9b109e719098bf980487df1f5d77e9cb29606ebed2263b5f57c213df84f4b2",
    "7fcdce2770f6c45d4183cbee6fdb4b7b580733357be9ef13bacf6e3c7bd15445",
    "c7f144cd1bbd9b7e872cdfedb9eeb9f4b3695d6ea90b24ad8a4623288588e5ad",
]);
/// The key of the gateway in that certificate: RFC 7517 section A.2.
pub(crate) const GATEWAY_CLIENT: PublishedKey = PublishedKey([
    "f3bd0c07a81fb932781ed52752f60cc89a6be5e51934fe01938ddb55d8f77801",
    "30a0424cd21c2944838a2d75c92b37e76ea20d9f00893a3b4eee8a3c0aafec3e",
    "e04b65e92456d9888b52b379bdfbd51ee869ef1f0fc65b6659695b6cce081723",
]);

impl PublishedKey {
    /// Loads the key as PKCS#8 (RFC 5958) around ECPrivateKey (RFC 5915).
    pub(crate) fn load(&self) -> PrivateKey {
        let Self([scalar, x, y]) = self;
        let point = [vec![4], from_hex(x), from_hex(y)].concat();
        let version = |number| tlv(INTEGER, &[&[number]]);
        let secret = tlv(OCTET_STRING, &[&from_hex(scalar)]);
        let key = tlv(SEQUENCE, &[&version(1), &secret, &tlv(0xa1, &[&bits(&point)])]);
        let algorithm = sequence(&[oid("1.2.840.10045.2.1"), oid("1.2.840.10045.3.1.7")]);
        let pkcs8 = tlv(SEQUENCE, &[&version(0), &algorithm, &tlv(OCTET_STRING, &[&key])]);
        PrivateKey::from_pkcs8(&pkcs8, &SystemRandom::new()).unwrap()
    }
}

fn from_hex(text: &str) -> Vec<u8> {
    (0..text.len()).step_by(2).map(|at| u8::from_str_radix(&text[at..at + 2], 16).unwrap()).collect()
}
