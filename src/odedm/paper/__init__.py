"""The paper itself: its numbers, its protocol, its tables and figures by number, and making them again."""
