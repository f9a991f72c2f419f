//! The language a peer says it is written in (RocketMQ's `LanguageCode`).

use std::fmt;

macro_rules! languages {
    ($($(#[$doc:meta])* $variant:ident = $code:literal $name:literal;)+) => {
        /// The language a peer says it is written in.
        ///
        /// It is only shown to people; an unknown one is [`LanguageCode::Other`], never an error.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum LanguageCode {
            $($(#[$doc])* $variant = $code,)+
        }

        impl LanguageCode {
            /// The language of a code of the binary header; an unknown code is `Other`.
            pub fn from_code(code: u8) -> LanguageCode {
                match code {
                    $($code => LanguageCode::$variant,)+
                    _ => LanguageCode::Other,
                }
            }

            /// The language of a name of the JSON header; an unknown name is `Other`.
            pub fn from_name(name: &str) -> LanguageCode {
                match name {
                    $($name => LanguageCode::$variant,)+
                    _ => LanguageCode::Other,
                }
            }

            /// The name in the JSON header.
            pub fn name(self) -> &'static str {
                match self {
                    $(LanguageCode::$variant => $name,)+
                }
            }
        }
    };
}

languages! {
    /// Java.
    Java = 0 "JAVA";
    /// C++.
    Cpp = 1 "CPP";
    /// .NET.
    Dotnet = 2 "DOTNET";
    /// Python.
    Python = 3 "PYTHON";
    /// Delphi.
    Delphi = 4 "DELPHI";
    /// Erlang.
    Erlang = 5 "ERLANG";
    /// Ruby.
    Ruby = 6 "RUBY";
    /// Any other.
    Other = 7 "OTHER";
    /// A client behind an HTTP gateway.
    Http = 8 "HTTP";
    /// Go.
    Go = 9 "GO";
    /// PHP.
    Php = 10 "PHP";
    /// OpenMessaging.
    Oms = 11 "OMS";
    /// Rust: this project.
    Rust = 12 "RUST";
    /// Node.js.
    NodeJs = 13 "NODE_JS";
}

impl LanguageCode {
    /// The code in the binary header.
    pub fn code(self) -> u8 {
        self as u8
    }
}

impl fmt::Display for LanguageCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn code_and_name_agree_and_unknown_ones_are_other() {
        for code in 0..=13 {
            let language = LanguageCode::from_code(code);
            assert_eq!(language.code(), code);
            assert_eq!(LanguageCode::from_name(language.name()), language);
        }
        assert_eq!(LanguageCode::from_code(200), LanguageCode::Other);
        assert_eq!(LanguageCode::from_name("COBOL"), LanguageCode::Other);
    }
}
