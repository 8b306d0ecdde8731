//! NumPy array file, version 1.0: a float32 matrix of known shape, written row by row.
//!
//! ```text
//! \x93NUMPY 1 0 | u16 header length | {'descr': '<f4', 'fortran_order': False, 'shape': (T, V), } spaces \n | f32 LE rows
//! ```
//! Invariants: 1. The data begin at a multiple of 64 bytes. 2. A finished file has exactly T rows.
//!
//! Source: NumPy Enhancement Proposal 1 and `numpy.lib.format`.

use std::io::{self, Write};

/// Writes a `[n_rows, n_cols]` matrix row by row.
pub struct NpyWriter<W: Write> {
    out: W,
    n_cols: usize,
    rows_left: usize,
}

impl<W: Write> NpyWriter<W> {
    /// Writes the header.
    ///
    /// # Errors
    /// Those of `out`.
    pub fn new(mut out: W, n_rows: usize, n_cols: usize) -> io::Result<Self> {
        out.write_all(&header(n_rows, n_cols)?)?;
        Ok(NpyWriter { out, n_cols, rows_left: n_rows })
    }

    /// Writes whole rows.
    ///
    /// # Errors
    /// `InvalidData` for a partial row or too many rows; otherwise those of `out`.
    pub fn rows(&mut self, values: &[f32]) -> io::Result<()> {
        let n_rows = values.len().checked_div(self.n_cols).unwrap_or(0);
        if n_rows * self.n_cols != values.len() || n_rows > self.rows_left {
            return Err(io::Error::new(
                io::ErrorKind::InvalidData,
                format!("{} values are not {} rows of {} or fewer", values.len(), self.rows_left, self.n_cols),
            ));
        }
        self.rows_left -= n_rows;
        for part in values.chunks(4096) {
            let bytes: Vec<u8> = part.iter().flat_map(|v| v.to_le_bytes()).collect();
            self.out.write_all(&bytes)?;
        }
        Ok(())
    }

    /// Flushes after the last row.
    ///
    /// # Errors
    /// `InvalidData` if rows are missing; otherwise those of `out`.
    pub fn finish(mut self) -> io::Result<W> {
        if self.rows_left > 0 {
            return Err(io::Error::new(io::ErrorKind::InvalidData, format!("{} rows are missing", self.rows_left)));
        }
        self.out.flush()?;
        Ok(self.out)
    }
}

fn header(n_rows: usize, n_cols: usize) -> io::Result<Vec<u8>> {
    const PREFIX_BYTES: usize = 10;
    const ALIGN_BYTES: usize = 64;
    let mut dict = format!("{{'descr': '<f4', 'fortran_order': False, 'shape': ({n_rows}, {n_cols}), }}");
    while !(PREFIX_BYTES + dict.len() + 1).is_multiple_of(ALIGN_BYTES) {
        dict.push(' ');
    }
    dict.push('\n');
    let length = u16::try_from(dict.len()).map_err(io::Error::other)?;
    let mut bytes = b"\x93NUMPY\x01\x00".to_vec();
    bytes.extend(length.to_le_bytes());
    bytes.extend(dict.as_bytes());
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn npy_header_is_aligned_and_has_the_shape() {
        for (n_rows, n_cols) in [(1, 1), (3, 2), (131_072, 128_256), (usize::MAX, usize::MAX)] {
            let header = header(n_rows, n_cols).unwrap();
            assert_eq!(header.len() % 64, 0);
            assert_eq!(header[..8], *b"\x93NUMPY\x01\x00");
            assert_eq!(usize::from(u16::from_le_bytes([header[8], header[9]])) + 10, header.len());
            let dict = std::str::from_utf8(&header[10..]).unwrap();
            assert!(dict.contains(&format!("'shape': ({n_rows}, {n_cols})")) && dict.ends_with('\n'), "{dict}");
        }
    }

    #[test]
    fn npy_rows_are_little_endian_in_order() {
        let mut npy = NpyWriter::new(Vec::new(), 3, 2).unwrap();
        npy.rows(&[1.0, 2.0]).unwrap();
        npy.rows(&[3.0, 4.0, 5.0, -6.0]).unwrap();
        let bytes = npy.finish().unwrap();
        let values: Vec<f32> = bytes[bytes.len() - 24..].chunks(4).map(|b| f32::from_le_bytes(b.try_into().unwrap())).collect();
        assert_eq!(values, [1.0, 2.0, 3.0, 4.0, 5.0, -6.0]);
        assert_eq!(bytes.len() % 64, 24);
    }

    #[test]
    fn npy_rejects_partial_missing_and_extra_rows() {
        let mut npy = NpyWriter::new(Vec::new(), 1, 2).unwrap();
        assert!(npy.rows(&[1.0]).is_err());
        assert!(npy.rows(&[1.0; 4]).is_err());
        assert!(npy.finish().is_err());
    }
}
