"""What makes the chart's generated parts."""
