//! GGUF header, version 2 or 3, parsed from untrusted bytes.
//!
//! ```text
//! magic, version, counts │ key, type, value ... │ name, dims, type, offset ... │ padding │ tensor data
//!         └──────────────────── Gguf::parse ───────────────────┘                 └ TensorTable: checked ranges
//! ```
//! Invariants: 1. Every count and length is checked against the remaining bytes before anything is allocated.
//! 2. After `parse`, every array and tensor range lies inside the bytes; tensors do not overlap. 3. Never panics.
//! Arrays stay in the file and are decoded on demand. Limits: `limits::MAX_FILE_COUNT`, strings below 64 MiB.
//! Source: the GGUF specification in the ggml repository.

use std::collections::HashMap;

use super::ModelError;
use super::quant::{TensorType, ggml_type_name};
use super::tensors::{TensorHeader, TensorTable, place_tensors};
use crate::base::limits::MAX_FILE_COUNT;

const MAX_KEY_BYTES: u64 = 65_535;
const MAX_STRING_BYTES: u64 = 64 << 20;
/// Largest header, bytes; real ones have a few tens of megabytes (vocabulary and merges).
const MAX_HEADER_BYTES: usize = 1 << 30;
const MAX_ALIGNMENT: u64 = 1 << 20;
const DEFAULT_ALIGNMENT: u64 = 32;
const MAX_DIMENSIONS: u32 = 4;

/// A metadata value. An array is a reference into the file.
#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    /// any unsigned integer
    Uint(u64),
    /// any signed integer
    Int(i64),
    /// f32 (exactly) or f64
    Float(f64),
    /// true or false
    Bool(bool),
    /// text; bytes that are not UTF-8 are replaced
    String(String),
    /// elements of one type, none of them an array
    Array(ArrayRef),
}

impl std::fmt::Display for Value {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Value::Uint(v) => v.fmt(f),
            Value::Int(v) => v.fmt(f),
            Value::Float(v) => v.fmt(f),
            Value::Bool(v) => v.fmt(f),
            Value::String(v) => write!(f, "'{}'", v.chars().take(60).collect::<String>()),
            Value::Array(v) => write!(f, "an array of {}", v.n),
        }
    }
}

/// Byte range of an array's elements.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ArrayRef {
    element: ElementType,
    /// number of elements
    pub n: usize,
    start: usize,
    end: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ElementType {
    U8,
    I8,
    U16,
    I16,
    U32,
    I32,
    F32,
    Bool,
    String,
    Array,
    U64,
    I64,
    F64,
}

impl ElementType {
    fn from_id(id: u32) -> Option<ElementType> {
        use ElementType::*;
        [U8, I8, U16, I16, U32, I32, F32, Bool, String, Array, U64, I64, F64].get(usize::try_from(id).ok()?).copied()
    }

    /// Size of a value, bytes; the minimum for strings and arrays.
    fn min_bytes(self) -> u64 {
        use ElementType::*;
        match self {
            U8 | I8 | Bool => 1,
            U16 | I16 => 2,
            U32 | I32 | F32 => 4,
            String | U64 | I64 | F64 => 8,
            Array => 12,
        }
    }
}

/// A parsed header.
#[derive(Debug, Clone)]
pub struct Gguf {
    /// 2 or 3
    pub version: u32,
    metadata: HashMap<String, Value>,
    tensors: TensorTable,
}

impl Gguf {
    /// True if the bytes begin like a GGUF file.
    pub fn is_gguf(bytes: &[u8]) -> bool {
        bytes.starts_with(b"GGUF")
    }

    /// Parses and checks the whole header. `bytes` is the whole file.
    ///
    /// # Errors
    /// The first fault, with its field or position.
    pub fn parse(bytes: &[u8]) -> Result<Gguf, ModelError> {
        let mut reader = Reader { bytes, at: 0 };
        let magic = reader.take(4, "the magic number")?;
        if magic != b"GGUF" {
            return Err(ModelError::corrupt("the magic number", format!("{magic:02x?}"), "'GGUF'"));
        }
        let version = reader.u32("the version")?;
        match version {
            2 | 3 => {}
            _ if matches!(version.swap_bytes(), 1..=3) => {
                return Err(ModelError::Unsupported(
                    "this GGUF file is big-endian, which is not supported. Download the little-endian file".to_owned(),
                ));
            }
            _ => return Err(ModelError::Version(version)),
        }
        // Smallest tensor: name length, dimension count, one dimension, type, offset. Smallest entry: key length, one byte of
        // key, type, one byte of value.
        let n_tensors = reader.count("the number of tensors", 32)?;
        let n_entries = reader.count("the number of metadata entries", 14)?;
        let mut metadata = HashMap::new();
        for i in 0..n_entries {
            let key = reader.key(&format!("key {i} of the metadata"))?;
            let ty = reader.element_type(&key)?;
            let value = reader.value(ty, &key)?;
            if reader.at > MAX_HEADER_BYTES {
                return Err(ModelError::corrupt("the metadata", format!("longer than {MAX_HEADER_BYTES} bytes"), "shorter"));
            }
            if metadata.insert(key.clone(), value).is_some() {
                return Err(ModelError::corrupt("the metadata", format!("listing '{key}' twice"), "one value for each key"));
            }
        }
        let alignment = alignment(&metadata)?;
        let headers = (0..n_tensors).map(|i| reader.tensor_header(i)).collect::<Result<Vec<_>, _>>()?;
        let data_start = (reader.at as u64).next_multiple_of(alignment);
        let tensors = place_tensors(headers, data_start, alignment, bytes.len() as u64)?;
        Ok(Gguf { version, metadata, tensors })
    }

    /// One metadata value.
    pub fn get(&self, key: &str) -> Option<&Value> {
        self.metadata.get(key)
    }

    /// Tensors by name, with checked byte ranges.
    pub fn tensors(&self) -> &TensorTable {
        &self.tensors
    }

    /// Adds the tensors of another part of the same model, stored in file `shard`.
    pub(crate) fn take_tensors_of(&mut self, part: Gguf, shard: usize) -> Result<(), ModelError> {
        self.tensors.take_over(part.tensors, shard)
    }

    /// A string; None if the key is absent.
    ///
    /// # Errors
    /// The value is not a string.
    pub fn string(&self, key: &str) -> Result<Option<&str>, ModelError> {
        match self.get(key) {
            None => Ok(None),
            Some(Value::String(text)) => Ok(Some(text)),
            Some(other) => Err(bad_value(key, other, "text")),
        }
    }

    /// An unsigned integer of any width; None if the key is absent.
    ///
    /// # Errors
    /// The value is not an integer, or is negative.
    pub fn uint(&self, key: &str) -> Result<Option<u64>, ModelError> {
        match self.get(key) {
            None => Ok(None),
            Some(Value::Uint(v)) => Ok(Some(*v)),
            Some(Value::Int(v)) if *v >= 0 => Ok(Some(v.unsigned_abs())),
            Some(other) => Err(bad_value(key, other, "a whole number")),
        }
    }

    /// A token id; None if the key is absent or the value is -1.
    ///
    /// # Errors
    /// The value is not a token id.
    pub fn token_id(&self, key: &str) -> Result<Option<u32>, ModelError> {
        match self.get(key) {
            Some(Value::Int(-1)) => Ok(None),
            // llama.cpp's converter writes u32::MAX for a missing token.
            Some(Value::Uint(v)) if *v == u64::from(u32::MAX) => Ok(None),
            _ => match self.uint(key)? {
                None => Ok(None),
                Some(v) => u32::try_from(v).map(Some).map_err(|_| bad_value(key, v, "a token id")),
            },
        }
    }

    /// A number; None if the key is absent.
    ///
    /// # Errors
    /// The value is not a finite number.
    pub fn float(&self, key: &str) -> Result<Option<f64>, ModelError> {
        match self.get(key) {
            None => Ok(None),
            Some(Value::Float(v)) if v.is_finite() => Ok(Some(*v)),
            Some(Value::Uint(v)) => Ok(Some(*v as f64)),
            Some(Value::Int(v)) => Ok(Some(*v as f64)),
            Some(other) => Err(bad_value(key, other, "a finite number")),
        }
    }

    /// A boolean; None if the key is absent.
    ///
    /// # Errors
    /// The value is not a boolean.
    pub fn bool(&self, key: &str) -> Result<Option<bool>, ModelError> {
        match self.get(key) {
            None => Ok(None),
            Some(Value::Bool(v)) => Ok(Some(*v)),
            Some(other) => Err(bad_value(key, other, "true or false")),
        }
    }

    fn array(&self, key: &str, must: &str) -> Result<Option<ArrayRef>, ModelError> {
        match self.get(key) {
            None => Ok(None),
            Some(Value::Array(array)) => Ok(Some(*array)),
            Some(other) => Err(bad_value(key, other, must)),
        }
    }

    /// Number of elements of an array; None if the key is absent.
    ///
    /// # Errors
    /// The value is not an array.
    pub fn array_len(&self, key: &str) -> Result<Option<usize>, ModelError> {
        Ok(self.array(key, "an array")?.map(|array| array.n))
    }

    /// An array of strings, read from `bytes`, the parsed file.
    ///
    /// # Errors
    /// The value is not an array of strings.
    pub fn strings(&self, bytes: &[u8], key: &str) -> Result<Option<Vec<String>>, ModelError> {
        let Some(array) = self.array(key, "an array of texts")? else { return Ok(None) };
        if array.element != ElementType::String {
            return Err(bad_value(key, "an array of numbers", "an array of texts"));
        }
        let mut reader = Reader::over(bytes, array.start, array.end)?;
        let texts = (0..array.n).map(|_| reader.string(key, MAX_STRING_BYTES)).collect::<Result<Vec<_>, _>>()?;
        Ok(Some(texts))
    }

    /// An array of numbers, read from `bytes`, the parsed file.
    ///
    /// # Errors
    /// The value is not an array of numbers.
    pub fn numbers(&self, bytes: &[u8], key: &str) -> Result<Option<Vec<f64>>, ModelError> {
        let Some(array) = self.array(key, "an array of numbers")? else { return Ok(None) };
        let mut reader = Reader::over(bytes, array.start, array.end)?;
        let number = |reader: &mut Reader<'_>| match reader.value(array.element, key)? {
            Value::Uint(v) => Ok(v as f64),
            Value::Int(v) => Ok(v as f64),
            Value::Float(v) => Ok(v),
            other => Err(bad_value(key, other, "an array of numbers")),
        };
        let numbers = (0..array.n).map(|_| number(&mut reader)).collect::<Result<Vec<_>, _>>()?;
        Ok(Some(numbers))
    }
}

pub(crate) fn bad_value(key: &str, got: impl ToString, must: &str) -> ModelError {
    ModelError::BadValue { place: "GGUF metadata", key: key.to_owned(), got: got.to_string(), must: must.to_owned() }
}

fn alignment(metadata: &HashMap<String, Value>) -> Result<u64, ModelError> {
    match metadata.get("general.alignment") {
        None => Ok(DEFAULT_ALIGNMENT),
        Some(Value::Uint(v)) if v.is_power_of_two() && *v <= MAX_ALIGNMENT => Ok(*v),
        Some(other) => Err(bad_value("general.alignment", other, "a power of two up to 1048576")),
    }
}

/// Reader at a position in the bytes. Every read takes the name of its field, for errors.
struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Reader<'a> {
    /// Reader of an array that `parse` has checked.
    fn over(bytes: &'a [u8], start: usize, end: usize) -> Result<Reader<'a>, ModelError> {
        let bytes = bytes.get(..end).ok_or_else(|| ModelError::corrupt("an array", "outside the file", "inside it"))?;
        Ok(Reader { bytes, at: start })
    }

    fn left(&self) -> u64 {
        (self.bytes.len() - self.at) as u64
    }

    fn take(&mut self, n: u64, what: &str) -> Result<&'a [u8], ModelError> {
        let end = usize::try_from(n).ok().and_then(|n| self.at.checked_add(n));
        let Some(slice) = end.and_then(|end| self.bytes.get(self.at..end)) else {
            let what = what.to_owned();
            return Err(ModelError::Truncated { what, offset: self.at, needed: n, available: self.left() });
        };
        self.at += slice.len();
        Ok(slice)
    }

    fn array_of<const N: usize>(&mut self, what: &str) -> Result<[u8; N], ModelError> {
        let mut out = [0; N];
        out.copy_from_slice(self.take(N as u64, what)?);
        Ok(out)
    }

    fn u32(&mut self, what: &str) -> Result<u32, ModelError> {
        Ok(u32::from_le_bytes(self.array_of(what)?))
    }

    fn u64(&mut self, what: &str) -> Result<u64, ModelError> {
        Ok(u64::from_le_bytes(self.array_of(what)?))
    }

    /// A count of items of at least `min_bytes` each.
    fn count(&mut self, what: &str, min_bytes: u64) -> Result<usize, ModelError> {
        let n = self.u64(what)?;
        if n > MAX_FILE_COUNT {
            return Err(ModelError::corrupt(what, n, format!("at most {MAX_FILE_COUNT}")));
        }
        // n is limited above, so the product cannot overflow.
        if n * min_bytes > self.left() {
            let what = format!("{what} ({n})");
            return Err(ModelError::Truncated { what, offset: self.at, needed: n * min_bytes, available: self.left() });
        }
        usize::try_from(n).map_err(|_| ModelError::corrupt(what, n, "smaller"))
    }

    fn string_bytes(&mut self, what: &str, max: u64) -> Result<&'a [u8], ModelError> {
        let n = self.u64(&format!("the length of {what}"))?;
        if n > max && n <= self.left() {
            return Err(ModelError::corrupt(format!("the length of {what}"), n, format!("at most {max}")));
        }
        self.take(n, what)
    }

    fn string(&mut self, what: &str, max: u64) -> Result<String, ModelError> {
        Ok(String::from_utf8_lossy(self.string_bytes(what, max)?).into_owned())
    }

    fn key(&mut self, what: &str) -> Result<String, ModelError> {
        let bytes = self.string_bytes(what, MAX_KEY_BYTES)?;
        match std::str::from_utf8(bytes) {
            Ok("") => Err(ModelError::corrupt(what, "empty", "a name")),
            Ok(key) => Ok(key.to_owned()),
            Err(_) => Err(ModelError::corrupt(what, "not UTF-8", "a name")),
        }
    }

    fn element_type(&mut self, key: &str) -> Result<ElementType, ModelError> {
        let id = self.u32(&format!("the type of '{key}'"))?;
        ElementType::from_id(id).ok_or_else(|| ModelError::corrupt(format!("the type of '{key}'"), id, "between 0 and 12"))
    }

    fn value(&mut self, ty: ElementType, key: &str) -> Result<Value, ModelError> {
        Ok(match ty {
            ElementType::U8 => Value::Uint(u8::from_le_bytes(self.array_of(key)?).into()),
            ElementType::I8 => Value::Int(i8::from_le_bytes(self.array_of(key)?).into()),
            ElementType::U16 => Value::Uint(u16::from_le_bytes(self.array_of(key)?).into()),
            ElementType::I16 => Value::Int(i16::from_le_bytes(self.array_of(key)?).into()),
            ElementType::U32 => Value::Uint(u32::from_le_bytes(self.array_of(key)?).into()),
            ElementType::I32 => Value::Int(i32::from_le_bytes(self.array_of(key)?).into()),
            ElementType::U64 => Value::Uint(u64::from_le_bytes(self.array_of(key)?)),
            ElementType::I64 => Value::Int(i64::from_le_bytes(self.array_of(key)?)),
            ElementType::F32 => Value::Float(f32::from_le_bytes(self.array_of(key)?).into()),
            ElementType::F64 => Value::Float(f64::from_le_bytes(self.array_of(key)?)),
            ElementType::Bool => match self.array_of(key)? {
                [0] => Value::Bool(false),
                [1] => Value::Bool(true),
                [other] => return Err(ModelError::corrupt(format!("'{key}'"), other, "0 or 1")),
            },
            ElementType::String => Value::String(self.string(key, MAX_STRING_BYTES)?),
            ElementType::Array => Value::Array(self.skip_array(key)?),
        })
    }

    /// Skips an array and returns its range.
    fn skip_array(&mut self, key: &str) -> Result<ArrayRef, ModelError> {
        let element = self.element_type(key)?;
        if element == ElementType::Array {
            return Err(ModelError::corrupt(format!("'{key}'"), "an array of arrays", "an array of plain values"));
        }
        let n = self.count(&format!("the number of elements of '{key}'"), element.min_bytes())?;
        let start = self.at;
        if element == ElementType::String {
            for _ in 0..n {
                self.string_bytes(key, MAX_STRING_BYTES)?;
            }
        } else {
            self.take(n as u64 * element.min_bytes(), key)?;
        }
        Ok(ArrayRef { element, n, start, end: self.at })
    }

    fn tensor_header(&mut self, i: usize) -> Result<TensorHeader, ModelError> {
        let name = self.key(&format!("the name of tensor {i}"))?;
        let what = |field: &str| format!("the {field} of tensor '{name}'");
        let n_dims = self.u32(&what("number of dimensions"))?;
        if n_dims == 0 || n_dims > MAX_DIMENSIONS {
            return Err(ModelError::corrupt(what("number of dimensions"), n_dims, "between 1 and 4"));
        }
        let mut shape = Vec::with_capacity(4);
        let mut n_elements = 1usize;
        for _ in 0..n_dims {
            let dim = self.u64(&what("shape"))?;
            let checked = usize::try_from(dim).ok().filter(|d| *d > 0).and_then(|d| Some((d, n_elements.checked_mul(d)?)));
            let Some((dim, product)) = checked else {
                return Err(ModelError::corrupt(what("shape"), dim, "a positive number within the address space"));
            };
            n_elements = product;
            shape.insert(0, dim);
        }
        let id = self.u32(&what("type"))?;
        let Some(ty) = TensorType::from_ggml_id(id) else {
            return Err(ModelError::TensorType { tensor: name, ty: ggml_type_name(id), supported: TensorType::supported() });
        };
        let cols = shape.last().copied().unwrap_or(1);
        let Some(n_bytes) = ty.row_bytes(cols).and_then(|row| row.checked_mul(n_elements / cols)) else {
            let must = format!("a multiple of {} for the type {ty}, within the address space", ty.block_elems());
            return Err(ModelError::corrupt(what("row length"), cols, must));
        };
        let offset = self.u64(&what("offset"))?;
        Ok(TensorHeader { name, shape, ty, offset, n_bytes: n_bytes as u64 })
    }
}
