//! Writes JSON in which the key of a map may be an object.

use serde::Serialize;
use serde::ser::{self, SerializeMap as _};
use serde_json::ser::{CompactFormatter, Formatter, PrettyFormatter};

type Error = serde_json::Error;
type Result<T> = std::result::Result<T, Error>;

/// Writes a value without any white space.
///
/// # Panics
///
/// If the value's own `Serialize` fails or a map key is an array; no type of this project does so.
pub fn to_vec<T: Serialize + ?Sized>(value: &T) -> Vec<u8> {
    let mut writer = Writer { out: Vec::with_capacity(256), formatter: CompactFormatter };
    value.serialize(&mut writer).expect("a type of this project serializes");
    writer.out
}

/// Writes a value with line breaks and tabs, as RocketMQ's configuration files are.
///
/// # Panics
///
/// As [`to_vec`].
pub fn to_vec_pretty<T: Serialize + ?Sized>(value: &T) -> Vec<u8> {
    let formatter = PrettyFormatter::with_indent(b"\t");
    let mut writer = Writer { out: Vec::with_capacity(256), formatter };
    value.serialize(&mut writer).expect("a type of this project serializes");
    writer.out
}

/// Scalars and layout come from serde_json; only what surrounds a map key is ours.
struct Writer<F> {
    out: Vec<u8>,
    formatter: F,
}

impl<F: Formatter> Writer<F> {
    fn scalar<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<()> {
        serde_json::to_writer(&mut self.out, value)
    }

    fn begin_object(&mut self) -> Result<Compound<'_, F>> {
        self.formatter.begin_object(&mut self.out).map_err(Error::io)?;
        Ok(Compound { writer: self, is_first: true, closing: Closing::Object })
    }

    fn begin_array(&mut self) -> Result<Compound<'_, F>> {
        self.formatter.begin_array(&mut self.out).map_err(Error::io)?;
        Ok(Compound { writer: self, is_first: true, closing: Closing::Array })
    }

    /// Opens `{"variant":`, which [`Writer::end_variant`] closes.
    fn begin_variant(&mut self, variant: &'static str) -> Result<()> {
        let mut object = self.begin_object()?;
        object.serialize_key(variant)?;
        self.formatter.begin_object_value(&mut self.out).map_err(Error::io)
    }

    fn end_variant(&mut self) -> Result<()> {
        self.formatter.end_object_value(&mut self.out).map_err(Error::io)?;
        self.formatter.end_object(&mut self.out).map_err(Error::io)
    }
}

#[derive(Clone, Copy, PartialEq)]
enum Closing {
    Object,
    Array,
    ObjectInVariant,
    ArrayInVariant,
}

/// An object or array that is being written.
struct Compound<'w, F> {
    writer: &'w mut Writer<F>,
    is_first: bool,
    closing: Closing,
}

impl<F: Formatter> Compound<'_, F> {
    fn element<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<()> {
        let writer = &mut *self.writer;
        writer.formatter.begin_array_value(&mut writer.out, self.is_first).map_err(Error::io)?;
        self.is_first = false;
        value.serialize(&mut *writer)?;
        writer.formatter.end_array_value(&mut writer.out).map_err(Error::io)
    }

    fn close(self) -> Result<()> {
        let writer = self.writer;
        match self.closing {
            Closing::Object | Closing::ObjectInVariant => {
                writer.formatter.end_object(&mut writer.out).map_err(Error::io)?;
            }
            Closing::Array | Closing::ArrayInVariant => {
                writer.formatter.end_array(&mut writer.out).map_err(Error::io)?;
            }
        }
        match self.closing {
            Closing::ObjectInVariant | Closing::ArrayInVariant => writer.end_variant(),
            Closing::Object | Closing::Array => Ok(()),
        }
    }
}

macro_rules! scalars {
    ($($method:ident: $type:ty),+) => {$(
        fn $method(self, value: $type) -> Result<()> {
            self.scalar(&value)
        }
    )+};
}

impl<'w, F: Formatter> ser::Serializer for &'w mut Writer<F> {
    type Ok = ();
    type Error = Error;
    type SerializeSeq = Compound<'w, F>;
    type SerializeTuple = Compound<'w, F>;
    type SerializeTupleStruct = Compound<'w, F>;
    type SerializeTupleVariant = Compound<'w, F>;
    type SerializeMap = Compound<'w, F>;
    type SerializeStruct = Compound<'w, F>;
    type SerializeStructVariant = Compound<'w, F>;

    scalars! {
        serialize_bool: bool, serialize_i8: i8, serialize_i16: i16, serialize_i32: i32,
        serialize_i64: i64, serialize_u8: u8, serialize_u16: u16, serialize_u32: u32,
        serialize_u64: u64, serialize_f32: f32, serialize_f64: f64, serialize_char: char,
        serialize_str: &str
    }

    fn serialize_bytes(self, value: &[u8]) -> Result<()> {
        self.scalar(value)
    }

    fn serialize_none(self) -> Result<()> {
        self.scalar(&())
    }

    fn serialize_some<T: Serialize + ?Sized>(self, value: &T) -> Result<()> {
        value.serialize(self)
    }

    fn serialize_unit(self) -> Result<()> {
        self.scalar(&())
    }

    fn serialize_unit_struct(self, _name: &'static str) -> Result<()> {
        self.scalar(&())
    }

    fn serialize_unit_variant(
        self,
        _name: &'static str,
        _index: u32,
        variant: &'static str,
    ) -> Result<()> {
        self.scalar(variant)
    }

    fn serialize_newtype_struct<T: Serialize + ?Sized>(
        self,
        _name: &'static str,
        value: &T,
    ) -> Result<()> {
        value.serialize(self)
    }

    fn serialize_newtype_variant<T: Serialize + ?Sized>(
        self,
        _name: &'static str,
        _index: u32,
        variant: &'static str,
        value: &T,
    ) -> Result<()> {
        self.begin_variant(variant)?;
        value.serialize(&mut *self)?;
        self.end_variant()
    }

    fn serialize_seq(self, _len: Option<usize>) -> Result<Compound<'w, F>> {
        self.begin_array()
    }

    fn serialize_tuple(self, _len: usize) -> Result<Compound<'w, F>> {
        self.begin_array()
    }

    fn serialize_tuple_struct(self, _name: &'static str, _len: usize) -> Result<Compound<'w, F>> {
        self.begin_array()
    }

    fn serialize_tuple_variant(
        self,
        _name: &'static str,
        _index: u32,
        variant: &'static str,
        _len: usize,
    ) -> Result<Compound<'w, F>> {
        self.begin_variant(variant)?;
        Ok(Compound { closing: Closing::ArrayInVariant, ..self.begin_array()? })
    }

    fn serialize_map(self, _len: Option<usize>) -> Result<Compound<'w, F>> {
        self.begin_object()
    }

    fn serialize_struct(self, _name: &'static str, _len: usize) -> Result<Compound<'w, F>> {
        self.begin_object()
    }

    fn serialize_struct_variant(
        self,
        _name: &'static str,
        _index: u32,
        variant: &'static str,
        _len: usize,
    ) -> Result<Compound<'w, F>> {
        self.begin_variant(variant)?;
        Ok(Compound { closing: Closing::ObjectInVariant, ..self.begin_object()? })
    }
}

impl<F: Formatter> ser::SerializeSeq for Compound<'_, F> {
    type Ok = ();
    type Error = Error;

    fn serialize_element<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<()> {
        self.element(value)
    }

    fn end(self) -> Result<()> {
        self.close()
    }
}

impl<F: Formatter> ser::SerializeTuple for Compound<'_, F> {
    type Ok = ();
    type Error = Error;

    fn serialize_element<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<()> {
        self.element(value)
    }

    fn end(self) -> Result<()> {
        self.close()
    }
}

impl<F: Formatter> ser::SerializeTupleStruct for Compound<'_, F> {
    type Ok = ();
    type Error = Error;

    fn serialize_field<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<()> {
        self.element(value)
    }

    fn end(self) -> Result<()> {
        self.close()
    }
}

impl<F: Formatter> ser::SerializeTupleVariant for Compound<'_, F> {
    type Ok = ();
    type Error = Error;

    fn serialize_field<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<()> {
        self.element(value)
    }

    fn end(self) -> Result<()> {
        self.close()
    }
}

impl<F: Formatter> ser::SerializeMap for Compound<'_, F> {
    type Ok = ();
    type Error = Error;

    fn serialize_key<T: Serialize + ?Sized>(&mut self, key: &T) -> Result<()> {
        let mut text = Writer { out: Vec::with_capacity(64), formatter: CompactFormatter };
        key.serialize(&mut text)?;
        let writer = &mut *self.writer;
        writer.formatter.begin_object_key(&mut writer.out, self.is_first).map_err(Error::io)?;
        self.is_first = false;
        match text.out.first() {
            Some(b'"' | b'{') => writer.out.extend_from_slice(&text.out),
            Some(b'[') | None => return Err(ser::Error::custom("a map key cannot be an array")),
            // Numbers and booleans.
            Some(_) => {
                writer.out.push(b'"');
                writer.out.extend_from_slice(&text.out);
                writer.out.push(b'"');
            }
        }
        writer.formatter.end_object_key(&mut writer.out).map_err(Error::io)
    }

    fn serialize_value<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<()> {
        let writer = &mut *self.writer;
        writer.formatter.begin_object_value(&mut writer.out).map_err(Error::io)?;
        value.serialize(&mut *writer)?;
        writer.formatter.end_object_value(&mut writer.out).map_err(Error::io)
    }

    fn end(self) -> Result<()> {
        self.close()
    }
}

impl<F: Formatter> ser::SerializeStruct for Compound<'_, F> {
    type Ok = ();
    type Error = Error;

    fn serialize_field<T: Serialize + ?Sized>(
        &mut self,
        name: &'static str,
        value: &T,
    ) -> Result<()> {
        self.serialize_entry(name, value)
    }

    fn end(self) -> Result<()> {
        self.close()
    }
}

impl<F: Formatter> ser::SerializeStructVariant for Compound<'_, F> {
    type Ok = ();
    type Error = Error;

    fn serialize_field<T: Serialize + ?Sized>(
        &mut self,
        name: &'static str,
        value: &T,
    ) -> Result<()> {
        ser::SerializeStruct::serialize_field(self, name, value)
    }

    fn end(self) -> Result<()> {
        self.close()
    }
}
