// Counters of a selection since the last reset, after the state of all layers, and weights that count as much attention.
const SCORED: u32 = 0u;          // pages whose tokens were scored
const SCORED_IN_RAM: u32 = 1u;   // those of them in RAM
const LISTED_IN_RAM: u32 = 2u;   // selected tokens in RAM
const USES: u32 = 3u;            // [L, P]: tokens selected of each page, if any are in RAM
// Log weight from which a token has much attention: 1 %.
const LN_MUCH: f32 = -4.605;
