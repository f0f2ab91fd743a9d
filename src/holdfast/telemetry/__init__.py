"""What can happen, and who hears of it: events, a bus, and a narrator that turns them into log lines."""
