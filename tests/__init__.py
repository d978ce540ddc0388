"""The tests mirror src/keepfast; what several of them share lives in packages beside them."""
