//! Pieces of weights: what is packed and uploaded at a time. Any thread may pack any piece.
//!
//! ```text
//! WeightLayout ─► Piece: rows of a slab │ a norm │ a bias ─► PieceGroup, of PIECE_BYTES ─ pack ─► PackedPieces
//! ```
//! Small pieces share a group, so that no copy to the device is small because a vector is.

use std::borrow::Cow;

use super::layout::{Group, MatrixLayout, NormLayout, Slab, WeightLayout, WeightSlice, native_format};
use crate::gpu::kernels::linear::WeightFormat;
use crate::model::ModelError;
use crate::model::arch::plan::{Matrix, TensorRef};
use crate::model::file::ModelFile;
use crate::model::quant::{self, TensorType};

/// Packed bytes of a group of pieces, which limits the RAM that loading takes.
pub(super) const PIECE_BYTES: u64 = 4 << 20;
/// Pieces begin at multiples of this in packed bytes.
const ALIGN_BYTES: usize = 16;

/// Weights that are packed together.
enum Piece<'a> {
    /// rows `first .. first + n` of a slab
    Rows { group: &'a Group, slab: &'a Slab, cols: usize, first: usize, n: usize },
    /// a vector of the file
    Vector { name: &'a str, target: WeightSlice },
    /// a bias of a matrix
    Bias { matrix: &'a Matrix, target: WeightSlice },
}

/// Pieces that are packed and uploaded together.
#[derive(Default)]
pub(super) struct PieceGroup<'a>(Vec<Piece<'a>>);

/// Bytes of a group of pieces, and where they go.
#[derive(Default)]
pub(super) struct PackedPieces {
    /// all of them
    pub bytes: Vec<u8>,
    /// their ranges
    pub ranges: Vec<PackedRange>,
}

/// A range of packed bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct PackedRange {
    /// begin in the packed bytes
    pub from: usize,
    /// size without padding
    pub n_bytes: usize,
    /// target
    pub target: WeightSlice,
    /// byte offset in the target
    pub skip: u64,
}

/// Receives one row in the format of the file.
type TakeRow<'a> = dyn FnMut(TensorType, &[u8]) -> Result<(), ModelError> + 'a;

/// All pieces of a model, in groups of at most `piece_bytes` if possible, in the order of the layout.
pub(super) fn groups(layout: &WeightLayout, piece_bytes: u64) -> Vec<PieceGroup<'_>> {
    let mut pieces = PieceList { piece_bytes, pieces: Vec::new() };
    pieces.add_matrix(&layout.token_embedding);
    layout.positions.iter().for_each(|positions| pieces.add_matrix(positions));
    for l in &layout.layers {
        [&l.qkv, &l.attn_output, &l.ffn_up, &l.ffn_down].into_iter().for_each(|m| pieces.add_matrix(m));
        let norms = [Some(&l.attn_norm), Some(&l.ffn_norm), l.q_norm.as_ref(), l.k_norm.as_ref()];
        norms.into_iter().flatten().for_each(|n| pieces.add_norm(n));
    }
    pieces.add_norm(&layout.output_norm);
    layout.output.iter().for_each(|output| pieces.add_matrix(output));
    let mut groups: Vec<PieceGroup> = Vec::new();
    for piece in pieces.pieces {
        match groups.last_mut().filter(|group| group.max_bytes() + piece.max_bytes() <= piece_bytes) {
            Some(group) => group.0.push(piece),
            None => groups.push(PieceGroup(vec![piece])),
        }
    }
    groups
}

/// Pieces of a model, being listed.
struct PieceList<'a> {
    piece_bytes: u64,
    pieces: Vec<Piece<'a>>,
}

impl<'a> PieceList<'a> {
    fn add_norm(&mut self, n: &'a NormLayout) {
        self.pieces.push(Piece::Vector { name: &n.plan.weight, target: n.weight });
        if let (Some(target), Some(name)) = (n.bias, &n.plan.bias) {
            self.pieces.push(Piece::Vector { name, target });
        }
    }

    fn add_matrix(&mut self, m: &'a MatrixLayout) {
        for group in &m.groups {
            let (step, cols) = (group.format.row_granularity(), m.cols);
            let step_bytes = group.format.quants_bytes(step, cols).max(1);
            // With their scales, the rows of a piece are at most `piece_bytes`, unless one step is more.
            let n_rows = (self.piece_bytes * 3 / 4 / step_bytes).max(1) as usize * step;
            for slab in &group.slabs {
                let piece = |first| Piece::Rows { group, slab, cols, first, n: n_rows.min(slab.n_rows - first) };
                self.pieces.extend((0..slab.n_rows).step_by(n_rows).map(piece));
            }
        }
        self.pieces.extend(m.bias.map(|target| Piece::Bias { matrix: &m.source, target }));
    }
}

impl PieceGroup<'_> {
    /// Most bytes that packing gives.
    pub fn max_bytes(&self) -> u64 {
        self.0.iter().map(Piece::max_bytes).sum()
    }

    /// Packs all pieces into `packed`, which is cleared first.
    ///
    /// # Errors
    /// A tensor that cannot be read.
    pub fn pack(&self, file: &ModelFile, packed: &mut PackedPieces) -> Result<(), ModelError> {
        packed.bytes.clear();
        packed.ranges.clear();
        self.0.iter().try_for_each(|piece| piece.pack(file, packed))
    }

    /// Lets the system read what packing will need.
    pub fn read_ahead(&self, file: &ModelFile) {
        for piece in &self.0 {
            if let Piece::Rows { group, slab, first, n, .. } = piece {
                let row = slab.first_row - group.first_row + first;
                parts_of_rows(group, row, *n).into_iter().for_each(|part| file.read_ahead(&part));
            }
        }
    }
}

impl PackedPieces {
    /// Room for `n_bytes` zeros that go to `target`, after what is packed already.
    fn add(&mut self, target: WeightSlice, skip: u64, n_bytes: usize) -> &mut [u8] {
        let from = self.bytes.len().next_multiple_of(ALIGN_BYTES);
        self.bytes.resize(from + n_bytes.next_multiple_of(ALIGN_BYTES), 0);
        self.ranges.push(PackedRange { from, n_bytes, target, skip });
        &mut self.bytes[from..from + n_bytes]
    }

    fn add_vector(&mut self, op: &'static str, target: WeightSlice, values: &[f32]) -> Result<(), ModelError> {
        let bytes: &[u8] = bytemuck::cast_slice(values);
        if bytes.len() as u64 > target.size {
            let (expected, got) = (format!("at most {} bytes", target.size), bytes.len().to_string());
            return Err(ModelError::Sizes { op, expected, got });
        }
        self.add(target, 0, bytes.len()).copy_from_slice(bytes);
        Ok(())
    }
}

impl Piece<'_> {
    fn max_bytes(&self) -> u64 {
        let aligned = |n: u64| n.next_multiple_of(ALIGN_BYTES as u64);
        match self {
            Piece::Rows { group: Group { format, .. }, cols, n, .. } => {
                aligned(format.quants_bytes(*n, *cols)) + aligned(format.scales_bytes(*n, *cols))
            }
            Piece::Vector { target, .. } | Piece::Bias { target, .. } => aligned(target.size),
        }
    }

    fn pack(&self, file: &ModelFile, packed: &mut PackedPieces) -> Result<(), ModelError> {
        match *self {
            Piece::Rows { group, slab, cols, first, n } => {
                let format = group.format;
                let n_bytes = (format.quants_bytes(n, cols) as usize, format.scales_bytes(n, cols) as usize);
                let row = slab.first_row - group.first_row + first;
                let quants_from = packed.bytes.len().next_multiple_of(ALIGN_BYTES);
                packed.add(slab.quants, format.quants_bytes(first, cols), n_bytes.0);
                let skip = if first == 0 { 0 } else { format.scales_bytes(first, cols) };
                packed.add(slab.scales, skip, n_bytes.1);
                let (quants, scales) = packed.bytes[quants_from..].split_at_mut(n_bytes.0.next_multiple_of(ALIGN_BYTES));
                pack_rows(file, group, (row, n), cols, &mut quants[..n_bytes.0], &mut scales[..n_bytes.1])?;
                // The scales of a format without any are the same for all rows.
                let step = format.row_granularity();
                if first > 0 && format.scales_bytes(step * 2, cols) == format.scales_bytes(step, cols) {
                    packed.ranges.pop();
                }
                Ok(())
            }
            Piece::Vector { name, target } => packed.add_vector("a norm", target, &file.vector(name)?),
            Piece::Bias { matrix, target } => packed.add_vector("a bias", target, &file.bias(matrix)?.unwrap_or_default()),
        }
    }
}

/// Packs rows `row .. row + n` of a group in its kernel format.
fn pack_rows(
    file: &ModelFile,
    g: &Group,
    (row, n): (usize, usize),
    cols: usize,
    quants: &mut [u8],
    scales: &mut [u8],
) -> Result<(), ModelError> {
    match g.format {
        WeightFormat::I8G16 => {
            let (mut q, mut scale, mut offset) = (Vec::new(), Vec::new(), Vec::new());
            take_rows(file, g, row, n, &mut |ty, bytes| {
                let (a, b) = (q.len(), scale.len());
                q.resize(a + cols, 0);
                scale.resize(b + cols / 16, 0.0);
                offset.resize(b + cols / 16, 0.0);
                quant::to_i8_groups(ty, bytes, &mut q[a..], &mut scale[b..], &mut offset[b..])
            })?;
            WeightFormat::repack_i8_groups(n, cols, &q, &scale, &offset, quants, scales)?;
        }
        format => {
            let mut raw = Vec::new();
            take_rows(file, g, row, n, &mut |ty, bytes| {
                if native_format(ty) == Some(format) {
                    raw.extend_from_slice(bytes);
                    return Ok(());
                }
                let mut values = vec![0.0f32; cols];
                quant::dequantize(ty, bytes, &mut values)?;
                raw.extend_from_slice(bytemuck::cast_slice(&values));
                Ok(())
            })?;
            format.repack(n, cols, &raw, quants, scales)?;
        }
    }
    Ok(())
}

/// Parts of the file with rows `row .. row + n` of a group. If the group is interleaved, those of gate and up.
fn parts_of_rows(g: &Group, row: usize, n: usize) -> Vec<TensorRef> {
    let cut = |part: &TensorRef, first_row: usize, n_rows: usize| TensorRef {
        first_row: part.first_row + first_row,
        n_rows,
        ..part.clone()
    };
    if g.interleaved {
        return g.parts.iter().take(2).map(|part| cut(part, row / 2, n.div_ceil(2))).collect();
    }
    let (mut skip, mut left, mut parts) = (row, n, Vec::new());
    for part in &g.parts {
        if skip >= part.n_rows {
            skip -= part.n_rows;
            continue;
        }
        let here = left.min(part.n_rows - skip);
        if here == 0 {
            break;
        }
        parts.push(cut(part, skip, here));
        (skip, left) = (0, left - here);
    }
    parts
}

/// Passes rows `row .. row + n` of a group to `take`, one at a time, in the group's row order.
fn take_rows(file: &ModelFile, g: &Group, row: usize, n: usize, take: &mut TakeRow<'_>) -> Result<(), ModelError> {
    let parts = parts_of_rows(g, row, n);
    let read = |part: &TensorRef| -> Result<(TensorType, Cow<'_, [u8]>), ModelError> {
        Ok((file.tensor_type(part)?, file.tensor_bytes(part)?))
    };
    if let (true, [gate, up]) = (g.interleaved, &parts[..]) {
        let n_pairs = gate.n_rows;
        let ((gate_ty, gate), (up_ty, up)) = (read(gate)?, read(up)?);
        let (gate_row, up_row) = (gate.len() / n_pairs, up.len() / n_pairs);
        for i in 0..n_pairs {
            take(gate_ty, &gate[i * gate_row..(i + 1) * gate_row])?;
            take(up_ty, &up[i * up_row..(i + 1) * up_row])?;
        }
        return Ok(());
    }
    for part in parts {
        let (ty, bytes) = read(&part)?;
        for row in bytes.chunks_exact(bytes.len() / part.n_rows) {
            take(ty, row)?;
        }
    }
    Ok(())
}
