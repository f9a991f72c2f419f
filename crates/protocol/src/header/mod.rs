//! Typed headers: what the extension fields of each request and answer are.
//!
//! Each header is declared once with [`header!`](macro@crate::header), in the file of its request family;
//! from the declaration come its decoder and its encoder, in both encodings. A type is called as
//! RocketMQ calls the request, with `Request` or `Response` behind it; a request without fields has
//! no type. Decoding is lenient as to unknown fields and strict as to mandatory ones.

pub mod auth;
pub mod client;
pub mod config;
pub mod controller;
pub mod group;
pub mod kv;
pub mod message;
pub mod offset;
pub mod pop;
pub mod pull;
pub mod registration;
pub mod replication;
pub mod route;
pub mod send;
pub mod stats;
pub mod topic;
pub mod transaction;

use std::borrow::Cow;

use thiserror::Error;

use crate::ext::{ExtFields, ExtSource, ExtValue, ExtWriter};

/// Fields that may ride on any request (RocketMQ's `RpcRequestHeader`, ACL and client hooks). The
/// typed headers leave them out; [`ExtFields::get`] finds them.
pub const RIDER_FIELDS: &[&str] = &[
    "bname",
    "ns",
    "nsd",
    "oway",
    "lo",
    "AccessKey",
    "Signature",
    "SecurityToken",
    "ReqT",
    "__ZONE_NAME",
    "__ZONE_MODE",
];

/// Why extension fields are not the header a request needs.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum HeaderError {
    /// A mandatory field is missing.
    #[error("mandatory header field {field} is missing")]
    Missing {
        /// The field's name on the wire.
        field: &'static str,
    },
    /// A value cannot be what its field wants.
    #[error("header field {field} is `{value}`, {expected} expected")]
    Invalid {
        /// The field's name on the wire.
        field: &'static str,
        /// The value, shortened.
        value: String,
        /// What would have been right.
        expected: &'static str,
    },
}

/// The extension fields of one kind of request or answer.
pub trait Header<'a>: Sized + ExtSource {
    /// Fills the struct in one pass over the fields.
    ///
    /// # Errors
    ///
    /// A mandatory field is missing, or a value cannot be what its field wants.
    fn decode(ext: &ExtFields<'a>) -> Result<Self, HeaderError>;
}

/// A type that a header field can have.
pub trait HeaderValue<'a>: Sized {
    /// Reads a value. `None` if it is empty and the type has no empty value: the binary encoding
    /// cannot tell an empty text from an absent one.
    ///
    /// # Errors
    ///
    /// The text is no such value.
    fn read(field: &'static str, value: ExtValue<'a>) -> Result<Option<Self>, HeaderError>;

    /// Writes the value.
    fn write(&self, field: &'static str, writer: &mut dyn ExtWriter);
}

impl<'a> HeaderValue<'a> for Cow<'a, str> {
    fn read(_field: &'static str, value: ExtValue<'a>) -> Result<Option<Self>, HeaderError> {
        Ok(Some(value.text()))
    }

    fn write(&self, field: &'static str, writer: &mut dyn ExtWriter) {
        writer.str(field, self);
    }
}

impl<'a> HeaderValue<'a> for bool {
    fn read(field: &'static str, value: ExtValue<'a>) -> Result<Option<Self>, HeaderError> {
        if value.is_empty() {
            return Ok(None);
        }
        let text = value.text();
        if text.eq_ignore_ascii_case("true") {
            Ok(Some(true))
        } else if text.eq_ignore_ascii_case("false") {
            Ok(Some(false))
        } else {
            Err(invalid(field, &text, "`true` or `false`"))
        }
    }

    fn write(&self, field: &'static str, writer: &mut dyn ExtWriter) {
        writer.bool(field, *self);
    }
}

macro_rules! integers {
    ($($type:ty: $expected:literal),+) => {$(
        impl<'a> HeaderValue<'a> for $type {
            fn read(field: &'static str, value: ExtValue<'a>) -> Result<Option<Self>, HeaderError> {
                if value.is_empty() {
                    return Ok(None);
                }
                let text = value.text();
                text.parse().map(Some).map_err(|_| invalid(field, &text, $expected))
            }

            fn write(&self, field: &'static str, writer: &mut dyn ExtWriter) {
                writer.int(field, i64::from(*self));
            }
        }
    )+};
}

integers! { i32: "a 32-bit integer", i64: "a 64-bit integer" }

impl<'a, T: HeaderValue<'a>> HeaderValue<'a> for Option<T> {
    fn read(field: &'static str, value: ExtValue<'a>) -> Result<Option<Self>, HeaderError> {
        T::read(field, value).map(|value| value.map(Some))
    }

    fn write(&self, field: &'static str, writer: &mut dyn ExtWriter) {
        if let Some(value) = self {
            value.write(field, writer);
        }
    }
}

fn invalid(field: &'static str, value: &str, expected: &'static str) -> HeaderError {
    HeaderError::Invalid { field, value: value.chars().take(64).collect(), expected }
}

/// Declares a header.
///
/// ```
/// use std::borrow::Cow;
///
/// rocketmq_protocol::header! {
///     /// An example.
///     pub struct ExampleRequest<'a> {
///         /// Must be there.
///         topic: Cow<'a, str> = "topic", required;
///         /// May be absent, and then is not written.
///         subscription: Option<Cow<'a, str>> = "subscription", optional;
///         /// Is read under either name and written under the first; 0 if absent.
///         queue_id: i32 = "queueId" | "e", default(0);
///     }
/// }
/// ```
///
/// All fields are public. [`Default`] gives the declared defaults, and an empty value or zero where
/// the field is mandatory. A type whose fields need no lifetime is declared without one.
#[macro_export]
macro_rules! header {
    (
        $(#[$meta:meta])*
        $vis:vis struct $name:ident<$lt:lifetime> { $($fields:tt)* }
    ) => {
        $crate::header! { @declare [$(#[$meta])*] [$vis] $name [<$lt>] $lt { $($fields)* } }
    };
    (
        $(#[$meta:meta])*
        $vis:vis struct $name:ident { $($fields:tt)* }
    ) => {
        $crate::header! { @declare [$(#[$meta])*] [$vis] $name [] 'a { $($fields)* } }
    };
    (
        @declare [$(#[$meta:meta])*] [$vis:vis] $name:ident [$($generics:tt)*] $lt:lifetime {
            $(
                $(#[$field_meta:meta])*
                $field:ident: $type:ty = $wire:literal $(| $alias:literal)*,
                $presence:ident $(($default:expr))?;
            )*
        }
    ) => {
        $(#[$meta])*
        #[derive(Clone, Debug, PartialEq, Eq)]
        $vis struct $name $($generics)* {
            $($(#[$field_meta])* pub $field: $type,)*
        }

        impl $($generics)* ::core::default::Default for $name $($generics)* {
            fn default() -> Self {
                $name {
                    $($field: $crate::header!(@default $presence $(($default))?),)*
                }
            }
        }

        impl<$lt> $crate::header::Header<$lt> for $name $($generics)* {
            fn decode(
                ext: &$crate::ext::ExtFields<$lt>,
            ) -> ::core::result::Result<Self, $crate::header::HeaderError> {
                $(let mut $field: ::core::option::Option<$type> = ::core::option::Option::None;)*
                ext.try_for_each(|name, value| {
                    match name {
                        $(
                            $wire $(| $alias)* => {
                                $field = $crate::header::HeaderValue::read(
                                    ::core::concat!($wire $(, " or ", $alias)*),
                                    value,
                                )?;
                            }
                        )*
                        _ => {}
                    }
                    ::core::result::Result::Ok(())
                })?;
                ::core::result::Result::Ok($name {
                    $($field: $crate::header!(@value $presence $(($default))?, $field,
                        ::core::concat!($wire $(, " or ", $alias)*)),)*
                })
            }
        }

        impl $($generics)* $crate::ext::ExtSource for $name $($generics)* {
            fn write_ext(&self, writer: &mut dyn $crate::ext::ExtWriter) {
                $($crate::header::HeaderValue::write(&self.$field, $wire, writer);)*
            }
        }
    };
    (@default required) => { ::core::default::Default::default() };
    (@default optional) => { ::core::option::Option::None };
    (@default default($default:expr)) => { $default };
    (@value required, $field:ident, $names:expr) => {
        $field.ok_or($crate::header::HeaderError::Missing { field: $names })?
    };
    (@value optional, $field:ident, $names:expr) => { $field.flatten() };
    (@value default($default:expr), $field:ident, $names:expr) => {
        match $field {
            ::core::option::Option::Some(value) => value,
            ::core::option::Option::None => $default,
        }
    };
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ext::to_pairs;

    header! {
        /// A header with a field of every kind.
        struct Example<'a> {
            topic: Cow<'a, str> = "topic" | "b", required;
            queue_id: i32 = "queueId", required;
            offset: i64 = "offset", default(-1);
            order: bool = "order", default(true);
            subscription: Option<Cow<'a, str>> = "subscription", optional;
            count: Option<i32> = "count", optional;
        }
    }

    fn decode<'a>(pairs: &'a [(&'a str, &'a str)]) -> Result<Example<'a>, HeaderError> {
        Example::decode(&ExtFields::from_pairs(pairs))
    }

    #[test]
    fn absent_fields_take_their_defaults() {
        let example = decode(&[("topic", "T"), ("queueId", "3"), ("unknown", "x")]).unwrap();
        let expected = Example { topic: "T".into(), queue_id: 3, ..Example::default() };
        assert_eq!(example, expected);
        assert_eq!((example.offset, example.order, example.count), (-1, true, None));
    }

    #[test]
    fn aliases_are_read_and_first_names_written() {
        let example = decode(&[("b", "T"), ("queueId", "3"), ("count", "9")]).unwrap();
        let written = to_pairs(&example);
        let written: Vec<_> = written.iter().map(|(name, value)| (&**name, &**value)).collect();
        assert_eq!(
            written,
            [("topic", "T"), ("queueId", "3"), ("offset", "-1"), ("order", "true"), ("count", "9")]
        );
    }

    #[test]
    fn errors_name_field_value_and_expectation() {
        assert_eq!(decode(&[("topic", "T")]), Err(HeaderError::Missing { field: "queueId" }));
        let error = decode(&[("topic", "T"), ("queueId", "99999999999")]).unwrap_err();
        assert_eq!(
            error.to_string(),
            "header field queueId is `99999999999`, a 32-bit integer expected"
        );
        let error = decode(&[("topic", "T"), ("queueId", "1"), ("order", "yes")]).unwrap_err();
        assert_eq!(error.to_string(), "header field order is `yes`, `true` or `false` expected");
    }

    #[test]
    fn an_empty_number_is_an_absent_one() {
        assert_eq!(
            decode(&[("topic", ""), ("queueId", "")]),
            Err(HeaderError::Missing { field: "queueId" })
        );
        assert_eq!(decode(&[("topic", ""), ("queueId", "1"), ("count", "")]).unwrap().count, None);
    }
}
