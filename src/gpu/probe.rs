//! Measures what this device can do: the denominators of every ratio that `bench` and `doctor` print.
