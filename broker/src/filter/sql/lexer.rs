//! Words of an SQL92 expression (the tokens of RocketMQ's `SelectorParser.jj`).

use super::parser::{ErrorKind, ParseError};

/// One word.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Token<'a> {
    Not,
    And,
    Or,
    Between,
    In,
    True,
    False,
    Null,
    Is,
    Contains,
    StartsWith,
    EndsWith,
    /// A whole number, with its `L` if it has one.
    Decimal(&'a str),
    /// A number with a point or an exponent.
    Float(&'a str),
    /// What stands between the quotes; a quote within is still doubled.
    Text(&'a str),
    /// A property.
    Name(&'a str),
    Equal,
    NotEqual,
    Greater,
    GreaterEqual,
    Less,
    LessEqual,
    Open,
    Close,
    Comma,
    Plus,
    Minus,
    End,
}

/// Cuts a text into words, one at a time: what stands behind a complete expression is not looked at
/// beyond its first word.
#[derive(Clone, Debug)]
pub(super) struct Lexer<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Lexer<'a> {
    pub(super) fn new(text: &'a str) -> Lexer<'a> {
        Lexer { text, at: 0 }
    }

    /// The next word and the byte it begins at; [`Token::End`] at the end, however often asked.
    ///
    /// # Errors
    /// When no word begins there.
    pub(super) fn next(&mut self) -> Result<(Token<'a>, usize), ParseError> {
        self.skip_space();
        let start = self.at;
        let rest = &self.text.as_bytes()[start..];
        let Some(&first) = rest.first() else { return Ok((Token::End, start)) };
        let second = rest.get(1).copied();
        let (token, len) = match (first, second) {
            (b'<', Some(b'>')) => (Token::NotEqual, 2),
            (b'<', Some(b'=')) => (Token::LessEqual, 2),
            (b'>', Some(b'=')) => (Token::GreaterEqual, 2),
            (b'<', _) => (Token::Less, 1),
            (b'>', _) => (Token::Greater, 1),
            (b'=', _) => (Token::Equal, 1),
            (b'(', _) => (Token::Open, 1),
            (b')', _) => (Token::Close, 1),
            (b',', _) => (Token::Comma, 1),
            (b'+', _) => (Token::Plus, 1),
            (b'-', _) => (Token::Minus, 1),
            (b'\'', _) => {
                let len = text_len(rest);
                let len = len.ok_or_else(|| self.error(ErrorKind::OpenText, start))?;
                (Token::Text(&self.text[start + 1..start + len - 1]), len)
            }
            (b'0'..=b'9' | b'.', _) => {
                let number = number_len(rest);
                let (len, is_float) = number.ok_or_else(|| self.unknown(start))?;
                let text = &self.text[start..start + len];
                (if is_float { Token::Float(text) } else { Token::Decimal(text) }, len)
            }
            _ if is_name_start(first) => {
                let len = rest.iter().take_while(|byte| is_name(**byte)).count();
                (word(&self.text[start..start + len]), len)
            }
            _ => return Err(self.unknown(start)),
        };
        self.at = start + len;
        Ok((token, start))
    }

    /// Passes over white space and comments. A line comment without a line end is none, as in
    /// RocketMQ: it is two minus signs then, and a block comment that does not end is an error.
    fn skip_space(&mut self) {
        loop {
            let rest = &self.text.as_bytes()[self.at..];
            let len = match rest {
                [b' ' | b'\t' | b'\n' | b'\r' | 0x0C, ..] => Some(1),
                [b'-', b'-', comment @ ..] => {
                    memchr::memchr2(b'\n', b'\r', comment).map(|end| 2 + end + 1)
                }
                [b'/', b'*', comment @ ..] => {
                    memchr::memmem::find(comment, b"*/").map(|end| 2 + end + 2)
                }
                _ => None,
            };
            match len {
                Some(len) => self.at += len,
                None => return,
            }
        }
    }

    fn unknown(&self, at: usize) -> ParseError {
        // `at` is a boundary: every word ends at one.
        let found = self.text[at..].chars().next().unwrap_or('\0');
        self.error(ErrorKind::Character(found), at)
    }

    pub(super) fn error(&self, kind: ErrorKind, at: usize) -> ParseError {
        let character = self.text.get(..at).map_or(0, |before| before.chars().count()) + 1;
        ParseError { kind, character }
    }
}

fn is_name_start(byte: u8) -> bool {
    byte.is_ascii_alphabetic() || matches!(byte, b'_' | b'$')
}

fn is_name(byte: u8) -> bool {
    is_name_start(byte) || byte.is_ascii_digit()
}

/// A keyword in any case, else the name of a property.
fn word(text: &str) -> Token<'_> {
    const KEYWORDS: [(&str, Token<'static>); 12] = [
        ("NOT", Token::Not),
        ("AND", Token::And),
        ("OR", Token::Or),
        ("BETWEEN", Token::Between),
        ("IN", Token::In),
        ("TRUE", Token::True),
        ("FALSE", Token::False),
        ("NULL", Token::Null),
        ("IS", Token::Is),
        ("CONTAINS", Token::Contains),
        ("STARTSWITH", Token::StartsWith),
        ("ENDSWITH", Token::EndsWith),
    ];
    let keyword = KEYWORDS.iter().find(|(keyword, _)| keyword.eq_ignore_ascii_case(text));
    keyword.map_or(Token::Name(text), |&(_, token)| token)
}

/// Bytes of the longest quoted text that `rest` begins with, quotes included. Two quotes stand for
/// one; where no single quote follows, the first of the last two is the end.
fn text_len(rest: &[u8]) -> Option<usize> {
    let mut fallback = None;
    let mut at = 1;
    while let Some(quote) = rest.get(at..).and_then(|rest| memchr::memchr(b'\'', rest)) {
        let end = at + quote + 1;
        if rest.get(end) != Some(&b'\'') {
            return Some(end);
        }
        fallback = Some(end);
        at = end + 1;
    }
    fallback
}

fn digits(bytes: &[u8]) -> usize {
    bytes.iter().take_while(|byte| byte.is_ascii_digit()).count()
}

/// Bytes of the longest number that `rest` begins with, and whether it is a float. A whole number
/// does not begin with 0: `01` is the number 0 and then the number 1, `0L` is 0 and then a name.
fn number_len(rest: &[u8]) -> Option<(usize, bool)> {
    let whole = digits(rest);
    let after = &rest[whole..];
    if let [b'.', fraction @ ..] = after {
        let fraction = digits(fraction);
        if whole + fraction > 0 {
            let len = whole + 1 + fraction;
            return Some((len + exponent_len(&rest[len..]), true));
        }
    }
    if whole == 0 {
        return None;
    }
    match (exponent_len(after), rest[0]) {
        (0, b'0') => Some((1, false)),
        (0, _) => Some((whole + usize::from(matches!(after, [b'l' | b'L', ..])), false)),
        (exponent, _) => Some((whole + exponent, true)),
    }
}

fn exponent_len(bytes: &[u8]) -> usize {
    let [b'e' | b'E', rest @ ..] = bytes else { return 0 };
    let sign = usize::from(matches!(rest, [b'+' | b'-', ..]));
    match digits(&rest[sign..]) {
        0 => 0,
        digits => 1 + sign + digits,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(text: &str) -> Vec<Token<'_>> {
        let mut lexer = Lexer::new(text);
        let mut tokens = Vec::new();
        loop {
            match lexer.next().expect("a word").0 {
                Token::End => return tokens,
                token => tokens.push(token),
            }
        }
    }

    #[test]
    fn words_are_cut_where_rocketmq_cuts_them() {
        use Token::*;
        assert_eq!(all("a>=5L"), [Name("a"), GreaterEqual, Decimal("5L")]);
        assert_eq!(all("01"), [Decimal("0"), Decimal("1")]);
        assert_eq!(all("0L 10l"), [Decimal("0"), Name("L"), Decimal("10l")]);
        assert_eq!(
            all("01.5 5. .5 5.e3"),
            [Float("01.5"), Float("5."), Float(".5"), Float("5.e3")]
        );
        assert_eq!(
            all("1E400 5e 5e+"),
            [Float("1E400"), Decimal("5"), Name("e"), Decimal("5"), Name("e"), Plus]
        );
        assert_eq!(all("5..3"), [Float("5."), Float(".3")]);
        assert_eq!(all("nOt iS null $a_1"), [Not, Is, Null, Name("$a_1")]);
        assert_eq!(all("'it''s' '' ''''"), [Text("it''s"), Text(""), Text("''")]);
        let open = Lexer::new("'x''y''z").next();
        assert_eq!(open, Ok((Text("x''y"), 0)), "as far as it ends");
        assert_eq!(
            all("a<>b<=c<d"),
            [Name("a"), NotEqual, Name("b"), LessEqual, Name("c"), Less, Name("d")]
        );
    }

    #[test]
    fn comments_end_or_are_none() {
        use Token::*;
        assert_eq!(all("a -- x\n= /* ** / */ 5"), [Name("a"), Equal, Decimal("5")]);
        assert_eq!(all("a --\r\n b"), [Name("a"), Name("b")]);
        assert_eq!(all("a -- b"), [Name("a"), Minus, Minus, Name("b")]);
        assert_eq!(all("/**/a/***/"), [Name("a")]);
    }

    #[test]
    fn what_is_no_word_is_named_with_its_place() {
        for (text, character, found) in [
            ("a != 5", 3, "`!`"),
            ("ü > 5", 1, "`ü`"),
            ("ü", 1, "`ü`"),
            ("'grün' ; ", 8, "`;`"),
            (".", 1, "`.`"),
            ("a /* b", 3, "`/`"),
            ("a = 'b", 5, "no closing quote"),
            ("'''", 3, "no closing quote"),
            ("'x''y''z", 7, "no closing quote"),
        ] {
            let mut lexer = Lexer::new(text);
            let error = std::iter::from_fn(|| Some(lexer.next()))
                .take(9)
                .find_map(Result::err)
                .expect("an error");
            assert_eq!(error.character, character, "{text}");
            assert!(error.to_string().contains(found), "{text}: {error}");
        }
    }
}
