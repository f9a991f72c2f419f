//! Configuration files: Java's `.properties` text, and structs that are filled from it.
//!
//! [`parse`] and [`write()`] know the text form, [`config!`](macro@crate::config) declares which keys a
//! program has. Which keys exist is said by the broker and the name server.

use std::fmt::Write as _;

use thiserror::Error;

/// Why a value of a configuration key is refused.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("configuration key {key} has the value `{value}`, allowed is {allowed}")]
pub struct ConfigError {
    /// The key.
    pub key: String,
    /// The value as given.
    pub value: String,
    /// What would be allowed.
    pub allowed: String,
}

/// A type that a configuration key can have.
pub trait ConfigValue: Sized {
    /// What its text may be, for the one who wrote something else.
    fn allowed() -> String;

    /// Reads a value; blanks around it do not count.
    fn parse(text: &str) -> Option<Self>;

    /// Writes a value.
    fn text(&self) -> String;
}

impl ConfigValue for bool {
    fn allowed() -> String {
        "true or false".to_owned()
    }

    fn parse(text: &str) -> Option<bool> {
        let text = text.trim();
        if text.eq_ignore_ascii_case("true") {
            Some(true)
        } else if text.eq_ignore_ascii_case("false") {
            Some(false)
        } else {
            None
        }
    }

    fn text(&self) -> String {
        self.to_string()
    }
}

impl ConfigValue for String {
    fn allowed() -> String {
        "any text".to_owned()
    }

    fn parse(text: &str) -> Option<String> {
        Some(text.trim().to_owned())
    }

    fn text(&self) -> String {
        self.clone()
    }
}

impl ConfigValue for f64 {
    fn allowed() -> String {
        "a decimal number".to_owned()
    }

    fn parse(text: &str) -> Option<f64> {
        text.trim().parse().ok().filter(|number: &f64| number.is_finite())
    }

    fn text(&self) -> String {
        // With a fraction always, as Java shows a double.
        format!("{self:?}")
    }
}

macro_rules! integers {
    ($($type:ty),+) => {$(
        impl ConfigValue for $type {
            fn allowed() -> String {
                format!("an integer from {} to {}", <$type>::MIN, <$type>::MAX)
            }

            fn parse(text: &str) -> Option<$type> {
                text.trim().parse().ok()
            }

            fn text(&self) -> String {
                self.to_string()
            }
        }
    )+};
}

integers!(i32, i64, u16, u32, u64, usize);

/// Reads the text of a `.properties` file into its pairs, in order; a key may occur twice.
///
/// Java's rules: `=`, `:` or a blank separates, `#` and `!` begin a comment line, a backslash at the
/// end continues a line, `\t \n \r \f \uXXXX` are escapes and a backslash before any other character
/// is dropped. Blanks before key and value are stripped, blanks after the value stay. Unlike Java,
/// which reads ISO-8859-1, the text is UTF-8.
pub fn parse(text: &str) -> Vec<(String, String)> {
    let mut pairs = Vec::new();
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        let mut line = line.trim_start_matches(BLANKS).to_owned();
        if line.is_empty() || line.starts_with(['#', '!']) {
            continue;
        }
        while ends_with_continuation(&line) {
            line.pop();
            let Some(next) = lines.next() else { break };
            line.push_str(next.trim_start_matches(BLANKS));
        }
        pairs.push(split_pair(&line));
    }
    pairs
}

/// Reads a `.properties` file: UTF-8 if it is valid UTF-8, else ISO-8859-1, as Java does always.
///
/// A byte order mark in front, which some editors write, is no part of the first key.
pub fn parse_bytes(bytes: &[u8]) -> Vec<(String, String)> {
    let bytes = bytes.strip_prefix(BYTE_ORDER_MARK).unwrap_or(bytes);
    match std::str::from_utf8(bytes) {
        Ok(text) => parse(text),
        Err(_) => parse(&bytes.iter().map(|&byte| char::from(byte)).collect::<String>()),
    }
}

/// A configuration file that is no text.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error(
    "byte {position} is zero, so this is no text in UTF-8 or ISO-8859-1; if an editor saved it as \
     UTF-16, save it as UTF-8"
)]
pub struct NotText {
    /// Where the first zero byte lies, from 0.
    pub position: usize,
}

/// As [`parse_bytes`], for a file that a person wrote.
///
/// # Errors
/// When it holds a zero byte, as UTF-16 does: its keys would all be unknown, and the program would
/// start with defaults.
pub fn parse_file(bytes: &[u8]) -> Result<Vec<(String, String)>, NotText> {
    match bytes.iter().position(|&byte| byte == 0) {
        Some(position) => Err(NotText { position }),
        None => Ok(parse_bytes(bytes)),
    }
}

/// Writes pairs as the text of a `.properties` file, one a line, such that [`parse`] and Java read
/// the same pairs back.
pub fn write<K: AsRef<str>, V: AsRef<str>>(pairs: &[(K, V)]) -> String {
    let mut out = String::new();
    for (key, value) in pairs {
        write_escaped(&mut out, key.as_ref(), true);
        out.push('=');
        write_escaped(&mut out, value.as_ref(), false);
        out.push('\n');
    }
    out
}

const BYTE_ORDER_MARK: &[u8] = "\u{feff}".as_bytes();
const BLANKS: [char; 3] = [' ', '\t', '\u{c}'];

/// An odd number of backslashes at the end continues the line; an even one is escaped backslashes.
fn ends_with_continuation(line: &str) -> bool {
    line.bytes().rev().take_while(|&byte| byte == b'\\').count() % 2 == 1
}

fn split_pair(line: &str) -> (String, String) {
    let mut is_escape = false;
    let key_end = line.char_indices().find(|&(_, c)| {
        let ends = !is_escape && (BLANKS.contains(&c) || matches!(c, '=' | ':'));
        is_escape = !is_escape && c == '\\';
        ends
    });
    let key_end = key_end.map_or(line.len(), |(at, _)| at);
    let (key, rest) = line.split_at(key_end);
    let rest = rest.trim_start_matches(BLANKS);
    let value = rest.strip_prefix(['=', ':']).unwrap_or(rest).trim_start_matches(BLANKS);
    (undo_escapes(key), undo_escapes(value))
}

fn undo_escapes(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        if c != '\\' {
            out.push(c);
            continue;
        }
        match chars.next() {
            Some('t') => out.push('\t'),
            Some('n') => out.push('\n'),
            Some('r') => out.push('\r'),
            Some('f') => out.push('\u{c}'),
            Some('u') => {
                let mut units = Vec::new();
                take_unit(&mut chars, &mut units);
                // A character beyond the basic plane is two escapes in a row.
                while units.last().is_some_and(|unit| (0xD800..0xDC00).contains(unit))
                    && chars.as_str().starts_with("\\u")
                {
                    chars.next();
                    chars.next();
                    take_unit(&mut chars, &mut units);
                }
                out.extend(
                    char::decode_utf16(units).map(|c| c.unwrap_or(char::REPLACEMENT_CHARACTER)),
                );
            }
            Some(itself) => out.push(itself),
            None => {}
        }
    }
    out
}

/// Takes the four digits of a `\u` escape; if they are none, the escape stands for U+FFFD.
fn take_unit(chars: &mut std::str::Chars<'_>, units: &mut Vec<u16>) {
    let digits = chars.as_str().get(..4).filter(|digits| digits.bytes().all(is_hex));
    match digits.and_then(|digits| u16::from_str_radix(digits, 16).ok()) {
        Some(unit) => {
            units.push(unit);
            *chars = chars.as_str()[4..].chars();
        }
        None => units.push(0xFFFD),
    }
}

fn is_hex(byte: u8) -> bool {
    byte.is_ascii_hexdigit()
}

fn write_escaped(out: &mut String, text: &str, is_key: bool) {
    for (at, c) in text.char_indices() {
        match c {
            '\t' => out.push_str("\\t"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\u{c}' => out.push_str("\\f"),
            '\\' => out.push_str("\\\\"),
            ' ' if is_key || at == 0 => out.push_str("\\ "),
            '=' | ':' if is_key => {
                out.push('\\');
                out.push(c);
            }
            '#' | '!' if is_key && at == 0 => {
                out.push('\\');
                out.push(c);
            }
            ' '..='~' => out.push(c),
            _ => {
                let mut units = [0_u16; 2];
                for unit in c.encode_utf16(&mut units) {
                    // Writing to a String cannot fail.
                    let _ = write!(out, "\\u{unit:04X}");
                }
            }
        }
    }
}

/// Declares a struct that is filled from a configuration file.
///
/// ```
/// rocketmq_protocol::config! {
///     /// An example.
///     pub struct ExampleConfig {
///         /// Port to listen on.
///         pub listen_port: u16 = 10911 => "listenPort", 1..=65535;
///         /// Name of the cluster.
///         pub cluster_name: String = "DefaultCluster".to_owned() => "brokerClusterName";
///     }
/// }
///
/// let pairs = rocketmq_protocol::config::parse("listenPort=9\nbrokerName=b");
/// let (config, unknown) = ExampleConfig::from_properties(&pairs).unwrap();
/// assert_eq!(config.listen_port, 9);
/// assert_eq!(unknown, ["brokerName"]);
/// let pairs = rocketmq_protocol::config::parse("listenPort=0");
/// assert_eq!(
///     ExampleConfig::from_properties(&pairs).unwrap_err().to_string(),
///     "configuration key listenPort has the value `0`, allowed is 1 to 65535"
/// );
/// ```
///
/// It has `Default`, `KEYS` (the names in the file), `from_properties`, `set`, `get` and
/// `to_properties`.
#[macro_export]
macro_rules! config {
    (
        $(#[$meta:meta])*
        $vis:vis struct $name:ident {
            $(
                $(#[$field_meta:meta])*
                pub $field:ident: $type:ty = $default:expr => $key:literal $(, $range:expr)?;
            )+
        }
    ) => {
        $(#[$meta])*
        #[derive(Clone, Debug, PartialEq)]
        $vis struct $name {
            $($(#[$field_meta])* pub $field: $type,)+
        }

        impl ::core::default::Default for $name {
            fn default() -> Self {
                $name { $($field: $default,)+ }
            }
        }

        impl $name {
            /// The keys in the file, in the order of their declaration.
            pub const KEYS: &'static [&'static str] = &[$($key,)+];

            /// Fills the struct from the pairs of a file; of a key that is there twice the last
            /// value counts. Also gives the keys that are none of its own.
            ///
            /// # Errors
            ///
            /// A value is not of its key's type or outside its range.
            pub fn from_properties<K: AsRef<str>, V: AsRef<str>>(
                pairs: &[(K, V)],
            ) -> ::core::result::Result<
                (Self, ::std::vec::Vec<::std::string::String>),
                $crate::config::ConfigError,
            > {
                let mut config = Self::default();
                let mut unknown = ::std::vec::Vec::new();
                for (key, value) in pairs {
                    if !config.set(key.as_ref(), value.as_ref())? {
                        unknown.push(::std::string::String::from(key.as_ref()));
                    }
                }
                ::core::result::Result::Ok((config, unknown))
            }

            /// Sets one key; `false` if there is no such key.
            ///
            /// # Errors
            ///
            /// The value is not of the key's type or outside its range; nothing is changed then.
            pub fn set(
                &mut self,
                key: &str,
                value: &str,
            ) -> ::core::result::Result<bool, $crate::config::ConfigError> {
                match key {
                    $(
                        $key => {
                            self.$field = $crate::config::parse_value::<$type>(
                                $key,
                                value,
                                $crate::config!(@range $type $(, $range)?),
                            )?;
                        }
                    )+
                    _ => return ::core::result::Result::Ok(false),
                }
                ::core::result::Result::Ok(true)
            }

            /// The value of a key as text; `None` if there is no such key.
            pub fn get(&self, key: &str) -> ::core::option::Option<::std::string::String> {
                match key {
                    $($key => {
                        ::core::option::Option::Some($crate::config::ConfigValue::text(&self.$field))
                    })+
                    _ => ::core::option::Option::None,
                }
            }

            /// Every key and its value, sorted by key.
            pub fn to_properties(&self) -> ::std::vec::Vec<(&'static str, ::std::string::String)> {
                let mut pairs = ::std::vec![
                    $(($key, $crate::config::ConfigValue::text(&self.$field)),)+
                ];
                pairs.sort_unstable_by_key(|&(key, _)| key);
                pairs
            }
        }
    };
    (@range $type:ty) => { ::core::option::Option::None };
    (@range $type:ty, $range:expr) => {
        ::core::option::Option::Some({
            let range: ::core::ops::RangeInclusive<$type> = $range;
            let allowed = ::std::format!(
                "{} to {}",
                $crate::config::ConfigValue::text(range.start()),
                $crate::config::ConfigValue::text(range.end()),
            );
            (range, allowed)
        })
    };
}

/// Reads a value and checks its range: what [`config!`](macro@crate::config) does with each key.
///
/// # Errors
///
/// The value is not of its type or outside the range.
pub fn parse_value<T: ConfigValue + PartialOrd>(
    key: &str,
    value: &str,
    range: Option<(std::ops::RangeInclusive<T>, String)>,
) -> Result<T, ConfigError> {
    let refused = |allowed| ConfigError { key: key.to_owned(), value: value.to_owned(), allowed };
    match (T::parse(value), range) {
        (Some(parsed), None) => Ok(parsed),
        (Some(parsed), Some((range, _))) if range.contains(&parsed) => Ok(parsed),
        (_, Some((_, allowed))) => Err(refused(allowed)),
        (None, None) => Err(refused(T::allowed())),
    }
}

/// Declares an enum whose values a configuration file names.
///
/// ```
/// rocketmq_protocol::config_enum! {
///     /// When a message counts as stored.
///     pub enum FlushDiskType {
///         /// In memory.
///         Async = "ASYNC_FLUSH",
///         /// On disk.
///         Sync = "SYNC_FLUSH",
///     }
/// }
/// assert_eq!("SYNC_FLUSH".parse::<FlushDiskType>(), Ok(FlushDiskType::Sync));
/// assert_eq!("x".parse::<FlushDiskType>().unwrap_err(), "ASYNC_FLUSH or SYNC_FLUSH");
/// ```
///
/// It has `Display`, `FromStr` (whose error says what is allowed) and is a
/// [`ConfigValue`].
#[macro_export]
macro_rules! config_enum {
    (
        $(#[$meta:meta])*
        $vis:vis enum $name:ident {
            $($(#[$variant_meta:meta])* $variant:ident = $text:literal,)+
        }
    ) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        $vis enum $name {
            $($(#[$variant_meta])* $variant,)+
        }

        impl $name {
            /// The name of the value in a configuration file.
            pub fn name(self) -> &'static str {
                match self {
                    $($name::$variant => $text,)+
                }
            }
        }

        impl ::core::fmt::Display for $name {
            fn fmt(&self, f: &mut ::core::fmt::Formatter<'_>) -> ::core::fmt::Result {
                f.write_str(self.name())
            }
        }

        impl ::core::str::FromStr for $name {
            type Err = ::std::string::String;

            fn from_str(text: &str) -> ::core::result::Result<Self, Self::Err> {
                <Self as $crate::config::ConfigValue>::parse(text)
                    .ok_or_else(<Self as $crate::config::ConfigValue>::allowed)
            }
        }

        impl $crate::config::ConfigValue for $name {
            fn allowed() -> ::std::string::String {
                [$($text),+].join(" or ")
            }

            fn parse(text: &str) -> ::core::option::Option<Self> {
                match text.trim() {
                    $($text => ::core::option::Option::Some($name::$variant),)+
                    _ => ::core::option::Option::None,
                }
            }

            fn text(&self) -> ::std::string::String {
                ::std::string::String::from(self.name())
            }
        }
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    config_enum! {
        /// A role.
        enum Role { Master = "ASYNC_MASTER", Slave = "SLAVE", }
    }

    config! {
        /// Every type once.
        struct Example {
            /// A port.
            pub listen_port: u16 = 10911 => "listenPort", 1..=65535;
            /// A text.
            pub broker_name: String = "b".to_owned() => "brokerName";
            /// A switch.
            pub enable: bool = true => "enable";
            /// A number.
            pub limit: i64 = -1 => "limit";
            /// A fraction.
            pub ratio: f64 = 0.8 => "aRatio", 0.0..=1.0;
            /// An enum.
            pub role: Role = Role::Master => "brokerRole";
        }
    }

    fn example(text: &str) -> Result<(Example, Vec<String>), ConfigError> {
        Example::from_properties(&parse(text))
    }

    #[test]
    fn a_byte_order_mark_is_skipped_and_utf_16_is_named() {
        let pairs = [("brokerName".to_owned(), "b".to_owned())];
        assert_eq!(parse_file("\u{feff}brokerName=b\n".as_bytes()), Ok(pairs.to_vec()));
        let utf_16: Vec<u8> = "brokerName=b".encode_utf16().flat_map(u16::to_be_bytes).collect();
        assert_eq!(parse_file(&utf_16), Err(NotText { position: 0 }));
    }

    #[test]
    fn values_of_every_type_are_read_and_written() {
        let (config, unknown) = example(
            "listenPort = 1 \nbrokerName: broker-a\nenable=FALSE\nlimit=-5\naRatio=1\n\
             brokerRole=SLAVE\nwhat=1\nlimit=7",
        )
        .unwrap();
        assert_eq!(unknown, ["what"]);
        let expected = Example {
            listen_port: 1,
            broker_name: "broker-a".to_owned(),
            enable: false,
            limit: 7,
            ratio: 1.0,
            role: Role::Slave,
        };
        assert_eq!(config, expected);
        let written = config.to_properties();
        assert_eq!(written[0], ("aRatio", "1.0".to_owned()));
        assert!(written.is_sorted());
        assert_eq!(Example::from_properties(&written).unwrap(), (config, vec![]));
        assert_eq!(Example::KEYS.len(), 6);
        assert_eq!(Example::default().get("brokerRole").as_deref(), Some("ASYNC_MASTER"));
    }

    #[test]
    fn refusals_name_key_value_and_what_is_allowed() {
        let refused = |text: &str| example(text).unwrap_err().allowed;
        assert_eq!(refused("listenPort=0"), "1 to 65535");
        assert_eq!(refused("listenPort=70000"), "1 to 65535");
        assert_eq!(refused("enable=1"), "true or false");
        assert_eq!(refused("brokerRole=BOSS"), "ASYNC_MASTER or SLAVE");
        assert_eq!(refused("aRatio=1.5"), "0.0 to 1.0");
        assert!(refused("limit=1k").starts_with("an integer from -9223372036854775808"));
        let mut config = Example::default();
        assert!(config.set("limit", "x").is_err());
        assert_eq!(config, Example::default());
        assert!(!config.set("unknown", "x").unwrap());
    }

    #[test]
    fn properties_text_is_read_by_the_rules_of_java() {
        let text = "# comment\n  ! comment\n\n a=1\nb : 2\nc 3\nd\ne= x y \nf=1,\\\n   2,\\\n   3\n\
                    g=\\u4e2d\\ud83d\\ude00\nh\\ h\\=\\:=v=w\ni=C:\\\\x\\tz\\q\r\nj=\nk=end\\\\\nl=\\";
        let pairs = parse(text);
        let pairs: Vec<_> = pairs.iter().map(|(k, v)| (k.as_str(), v.as_str())).collect();
        let expected = [
            ("a", "1"),
            ("b", "2"),
            ("c", "3"),
            ("d", ""),
            ("e", "x y "),
            ("f", "1,2,3"),
            ("g", "中\u{1F600}"),
            ("h h=:", "v=w"),
            ("i", "C:\\x\tzq"),
            ("j", ""),
            ("k", "end\\"),
            ("l", ""),
        ];
        assert_eq!(pairs, expected);
    }

    #[test]
    fn latin_1_files_are_read_as_java_reads_them() {
        assert_eq!(parse_bytes(b"a=\xE9"), [("a".to_owned(), "é".to_owned())]);
        assert_eq!(parse_bytes("a=é".as_bytes()), [("a".to_owned(), "é".to_owned())]);
    }

    proptest::proptest! {
        #[test]
        fn what_is_written_is_read_back(
            pairs in proptest::collection::vec((".{1,12}", ".{0,20}"), 0..8)
        ) {
            let pairs: Vec<(String, String)> = pairs;
            let text = write(&pairs);
            proptest::prop_assert!(text.is_ascii());
            proptest::prop_assert_eq!(parse(&text), pairs);
        }

        #[test]
        fn any_bytes_are_read(bytes: Vec<u8>) {
            parse_bytes(&bytes);
        }
    }
}
